"""A hook that fails lets nothing pass: mitmproxy would log the error and go on with what the hook had not looked at yet."""

from collections.abc import Callable
from typing import Any

from mitmproxy import connection, http, tls
from mitmproxy.addonmanager import AddonManager
from mitmproxy.hooks import Hook
from mitmproxy.master import Master
from mitmproxy.proxy import layer, server_hooks

from functions.egress_proxy.layers import RefusalLayer

_FAILED = "the proxy failed"


class FailClosedAddons(AddonManager):
    """mitmproxy's caller of hooks, for all addons alike."""

    def __init__(self, master: Master, cut: Callable[[str], None]) -> None:
        """``cut`` closes a client's connection, by the client's id, and with it those to the hosts that it led to."""
        super().__init__(master)
        self._cut = cut

    async def invoke_addon(self, addon: Any, event: Hook) -> None:
        try:
            await super().invoke_addon(addon, event)
        except Exception:
            for subject in event.args():
                if (client := _shut(subject)) is not None:
                    self._cut(client.id)
            raise


def _shut(subject: object) -> connection.Client | None:
    """Mark what the hook was about as refused, in the way that mitmproxy looks at next; the client whose connection has to end.

    The connection is cut a turn of the loop later. What mitmproxy does within this turn is stopped by the mark.
    """
    match subject:
        case http.HTTPFlow():
            for message in subject.websocket.messages if subject.websocket else ():
                message.drop()
            if subject.killable:
                subject.kill()
            return subject.client_conn
        case layer.NextLayer():
            subject.layer = RefusalLayer(subject.context, b"")
            return subject.context.client
        case server_hooks.ServerConnectionHookData():
            subject.server.error = _FAILED
            return subject.client
        case tls.TlsData() | tls.ClientHelloData():
            return subject.context.client  # Without a TLS context, which the hook has not made, there is no handshake.
        case connection.Client():
            subject.error = _FAILED
            return subject
        case _:
            return None
