"""The egress proxy: mitmproxy's engine, our gate, one process.

    python -m functions.egress_proxy.main --listen unix:/run/egress/proxy.sock --ca-dir .moorage/egress

It takes the deployment's settings from the environment like every other process (``MOORAGE_TABLE``, ``MOORAGE_EGRESS_KEY``,
``MOORAGE_ALLOWED_EGRESS_DOMAINS`` ...), prints one JSON line when it listens, one per decision, and ends on SIGTERM with its log
written. It runs in an environment of its own (``requirements/egress.txt``).
"""

import argparse
import asyncio
import ctypes
import logging
import resource
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import boto3
from botocore.config import Config
from mitmproxy import options
from mitmproxy.addons import disable_h2c, proxyserver
from mitmproxy.master import Master
from mitmproxy.proxy.layers.modes import HttpProxy
from mitmproxy.proxy.mode_specs import ProxyMode
from moorage import limits
from moorage.egress.ca import Authority, ensure_ca, ensure_open_ca
from moorage.egress.grants import Grants
from moorage.egress.keys import KeyService, key_service
from moorage.egress.service import ceiling
from moorage.egress.store import EgressStore
from moorage.settings import Settings
from moorage.store.dynamodb import DynamoTable
from moorage.store.sqlite_table import table_in
from moorage.store.table import Table
from moorage.telemetry import open_log, tell, tell_error

from functions.egress_proxy.addon import EgressAddon
from functions.egress_proxy.admission import Admission
from functions.egress_proxy.certificates import DeploymentCertificates
from functions.egress_proxy.fail_closed import FailClosedAddons
from functions.egress_proxy.journal import DecisionLog, write_line
from functions.egress_proxy.listening import ClientListener
from functions.egress_proxy.pacing import PacedConnection
from functions.egress_proxy.peers import Peers
from functions.egress_proxy.resolver import Resolver

_READ_CONFIG = Config(connect_timeout=1, read_timeout=2, max_pool_connections=16, retries={"mode": "standard", "total_max_attempts": 2})
"""A policy that cannot be read within a few seconds is a policy that says no; waiting longer helps nobody."""
_START_CONFIG = Config(connect_timeout=2, read_timeout=9, retries={"mode": "standard", "total_max_attempts": 3})
"""Without its CA the proxy is of no use, and what it asks may just be starting too."""

_PR_SET_DUMPABLE = 4
_FILES_PER_CONNECTION = 2
"""The client's, and the one to the host."""
_FILES_BESIDE = 128


def main(arguments: Sequence[str] | None = None, gate_class: type[EgressAddon] = EgressAddon) -> None:
    chosen = _parse(arguments)
    _keep_memory_private()
    settings = Settings.from_environment()
    open_log(level=settings.log_level, service=settings.name)
    logging.basicConfig(handlers=[_EngineErrors()], level=logging.ERROR, force=True)
    asyncio.run(_serve(chosen, settings, gate_class))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="egress_proxy", description="The egress proxy of a moorage deployment.")
    parser.add_argument("--listen", action="append", required=True, metavar="unix:PATH|HOST:PORT", help="may be repeated")
    parser.add_argument("--ca-dir", type=Path, help="keep the CA there rather than sealed in the table")
    parser.add_argument("--hosts", type=Path, metavar="FILE", help="names with fixed addresses, as in /etc/hosts; read when changed")
    parser.add_argument(
        "--upstream-ca", type=Path, metavar="FILE", help="CAs that hosts are checked against, instead of the public ones"
    )
    return parser.parse_args(arguments)


def _keep_memory_private() -> None:
    """Opened secrets live in this process: no core dump, and no other process of the same user may look into it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _connections_max() -> int:
    """As many as may be open at once, with as many files as the system lets this process open: the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.EGRESS_ALL_CONNECTIONS_MAX * _FILES_PER_CONNECTION + _FILES_BESIDE
    files = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return min(limits.EGRESS_ALL_CONNECTIONS_MAX, (files - _FILES_BESIDE) // _FILES_PER_CONNECTION)


async def _serve(chosen: argparse.Namespace, settings: Settings, gate_class: type[EgressAddon]) -> None:
    executor = ThreadPoolExecutor(max_workers=16, thread_name_prefix="aws")
    authority = await _authority(chosen.ca_dir, *_stores(settings, executor, _START_CONFIG))
    store, keys = _stores(settings, executor, _READ_CONFIG)
    grants = Grants(store, keys, ceiling(settings), time.monotonic)
    journal = DecisionLog(store, settings.retention_seconds, lambda: time.time_ns() // 1_000_000)

    master = Master(options.Options())
    server = proxyserver.Proxyserver()
    peers = Peers(_connections_max())
    gate = gate_class(grants, Resolver(chosen.hosts), journal, server, peers)
    master.addons = FailClosedAddons(master, gate.cut)
    master.addons.add(server, disable_h2c.DisableH2C(), gate, DeploymentCertificates(authority))
    master.options.update(
        server=False,  # It listens here, since mitmproxy knows no Unix sockets.
        connection_strategy="eager",  # A host that does not answer is then told in the answer to CONNECT.
        rawtcp=False,
        upstream_cert=False,
        ssl_verify_upstream_trusted_ca=None if chosen.upstream_ca is None else str(chosen.upstream_ca),
    )
    mode = ProxyMode.parse("regular")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = PacedConnection(master, reader, writer, master.options, mode, layers_of=gate.http_layers_of, may_keep=peers.keep)
        handler.layer = HttpProxy(handler.layer.context)
        with server.register_connection(handler.client.id, handler):
            await handler.handle_client()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, master.shutdown)
    admission = Admission(peers.has_room)
    places_key = None if settings.egress_places_key is None else bytes.fromhex(settings.egress_places_key)
    listeners = [ClientListener(address, admission, handle, places_key) for address in chosen.listen]
    background = [asyncio.create_task(each) for each in (journal.run(), gate.sweep(), admission.run())]
    write_line({"event": "egress_ready", "listen": [listener.name for listener in listeners]})
    try:
        await master.run()
    finally:
        for listener in listeners:
            listener.close()
        for task in background:
            task.cancel()
        await journal.flush()


def _stores(settings: Settings, executor: ThreadPoolExecutor, config: Config) -> tuple[EgressStore, KeyService | None]:
    table: Table
    if settings.store_dir is not None:
        table = table_in(Path(settings.store_dir))
    else:
        table = DynamoTable(boto3.client("dynamodb", config=config), settings.table_name, executor)
    store = EgressStore(table)
    if not settings.egress_key:
        return store, None
    return store, key_service(settings.egress_key, executor, partial(boto3.client, "kms", config=config))


async def _authority(ca_dir: Path | None, store: EgressStore, keys: KeyService | None) -> Authority:
    if ca_dir is not None:
        return ensure_ca(ca_dir)
    if keys is None:
        raise SystemExit("The proxy needs a place for its CA: give --ca-dir, or MOORAGE_EGRESS_KEY to keep it sealed in the table.")
    return await ensure_open_ca(store, keys)


class _EngineErrors(logging.Handler):
    """What goes wrong inside mitmproxy, told as everything is: its messages may quote requests and answers."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            tell_error(error, "egress_error", source=record.name)
        else:
            tell("egress_error", {"source": record.name, "where": f"{record.filename}:{record.lineno}:{record.funcName}"})


if __name__ == "__main__":
    main()
