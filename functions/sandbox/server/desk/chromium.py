"""Starting Chromium: which one, with what flags, and behind which sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from typing import Any, Callable, Dict, List, Optional

from configuration import ServerConfig
from processes import Processes, found
from request_errors import RequestError

from desk.pipe import CdpError, CdpPipe

START_SECONDS = 20.0
END_SECONDS = 5.0
WHOLE = ("/usr/lib/chromium/chromium", "/usr/bin/chromium", "/usr/bin/google-chrome")
WINDOWLESS = ("/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium-headless-shell")
LOG_BYTES_MAX = 4_096
CACHE_BYTES = 32 * 1024 * 1024

FLAGS = (
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-smooth-scrolling",
    "--disable-sync",
    "--enable-automation",
    "--force-color-profile=srgb",
    "--hide-scrollbars=false",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    "--site-per-process",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=BackForwardCache,Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,AutofillServerCommunication,"
    "CertificateTransparencyComponentUpdater,EncryptedClientHello,InterestFeedContentSuggestions,NetworkTimeServiceQuerying,WebBluetooth,WebUsb",
    # Without the second, 127.0.0.1 would not be asked for by way of the proxy. A host that no proxy resolves is not looked up.
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    f"--disk-cache-size={CACHE_BYTES}",
    "about:blank",
)


def installed(config: ServerConfig) -> Optional[str]:
    """The whole browser if it is there, else the headless shell; None if there is neither."""
    candidates = [str(config.desk["browser"])] if config.desk.get("browser") else [*WHOLE, *WINDOWLESS]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


class Chromium:
    """One process of it, from its start to its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ServerConfig,
        processes: Processes,
        on_event: Callable[[str, str, Dict[str, Any]], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._config = config
        self._processes = processes
        self._on_event = on_event
        self._on_ended = on_ended
        self._ended = asyncio.Event()
        self._pid = 0
        self._is_up = False
        self.pipe: Optional[CdpPipe] = None
        self.version = ""
        self.has_own_sandbox = False
        self.program = installed(config)
        self.directory = ""
        """Of its profile and its downloads; removed at its end."""

    @property
    def is_whole(self) -> bool:
        return self.program is not None and "headless" not in self.program

    async def start(self, proxy_port: int, width: int, height: int) -> CdpPipe:
        """Raises :class:`RequestError` where there is no browser, or where it does not start."""
        if self.program is None:
            raise RequestError(501, "desk_unavailable", unavailable())
        os.makedirs(self._config.desk["directory"], exist_ok=True)
        self.directory = tempfile.mkdtemp(prefix="desk-", dir=self._config.desk["directory"])
        for name in ("profile", "downloads", "uploads"):
            os.mkdir(os.path.join(self.directory, name), 0o700)
        flags = [f"--proxy-server=127.0.0.1:{proxy_port}", f"--window-size={width},{height}", *self._flags()]
        pipe = await self._try(flags)
        self.has_own_sandbox = pipe is not None
        if pipe is None:
            # Where this process may make no user namespaces, Chromium refuses to start without the flag.
            pipe = await self._try(["--no-sandbox", *flags])
        if pipe is None:
            words = self.last_words()
            self._clear()
            raise RequestError(500, "desk_unavailable", f"The browser did not start. {words}")
        self._is_up = True
        return pipe

    def _flags(self) -> List[str]:
        whole = ["--headless=new"] if self.is_whole else ["--headless"]
        pins = self._config.desk.get("trusted_keys") or []
        if pins and not self.is_whole:  # It reads no policies, and so not the one that names the certificate.
            whole.append(f"--ignore-certificate-errors-spki-list={','.join(pins)}")
        return [f"--user-data-dir={self.directory}/profile", *whole, *FLAGS]

    async def _try(self, flags: List[str]) -> Optional[CdpPipe]:
        self._ended.clear()
        pipe = CdpPipe(self._loop, self._on_event, self._closed)
        reads, writes = pipe.browser_fds
        bash = found("bash", self._config.path) or "/bin/bash"
        log = os.open(os.path.join(self.directory, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._pid = self._processes.spawn(
            [bash, "-c", f'exec "$0" "$@" 3<&{reads} 4>&{writes} {reads}<&- {writes}>&-', str(self.program), *flags],
            lambda code: self._gone(),
            cwd=self.directory,
            env=self._environment(),
            stdin=0,
            stdout=log,
            stderr=log,
            pass_fds=(reads, writes),
        )
        os.close(log)
        pipe.close_browser_ends()
        try:
            answer = await pipe.ask("Browser.getVersion", seconds=START_SECONDS)
        except (CdpError, asyncio.TimeoutError):
            pipe.close()
            await self._until_ended()
            return None
        self.version, self.pipe = answer["product"].replace("Headless", ""), pipe
        return pipe

    def _environment(self) -> Dict[str, str]:
        return {
            "PATH": self._config.path,
            "HOME": self.directory,
            "TMPDIR": self.directory,
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "XDG_RUNTIME_DIR": self.directory,
        }

    async def stop(self) -> None:
        self._is_up = False
        if self.pipe is not None:
            self.pipe.close()
        await self._until_ended()
        self._clear()

    async def _until_ended(self) -> None:
        """It ends by itself when its pipe is closed."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ended.wait(), END_SECONDS)

    def _gone(self) -> None:
        self._ended.set()
        if self.pipe is not None:
            self.pipe.close()

    def _closed(self) -> None:
        if self._is_up:
            self._is_up = False
            self._on_ended()

    def _clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def last_words(self) -> str:
        """What it printed last."""
        with contextlib.suppress(OSError), open(os.path.join(self.directory, "log"), "rb") as file:
            return file.read()[-LOG_BYTES_MAX:].decode("utf-8", "replace").strip()[-500:]
        return ""


def unavailable() -> str:
    return (
        "There is no browser here. Local sandboxes of bubblewrap have one if Chromium is installed: 'apt install chromium'. Those of a "
        "container engine have one from the image of 'moorage sandbox-image build --desk'."
    )
