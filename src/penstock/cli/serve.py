"""`penstock serve`: a broker in this process, or several in processes of their own, until a signal ends it.

Called by cli.main before anything else is imported. The options are read with argparse and not with typer, which alone
takes longer to import (0.1 s, 8 MB) than the rest of the start and is of no use to a server.
A first SIGINT or SIGTERM stops cleanly; a second one ends the process at once, as a crash would.
With --brokers this process runs no broker itself: it keeps the others running (cli.supervise).
"""

import argparse
import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.gateway_choice import GatewayChoice, choose_gateway
from penstock.cli.log_format import FORMATS, LEVELS, log_to_stderr
from penstock.config import BrokerConfig
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.broker import Broker
    from penstock.cli.gateway_keeper import GatewayKeeper
    from penstock.cli.supervise import Ready

log = logging.getLogger(__name__)

USAGE_ERROR = 2
GAVE_UP = 3
BROKERS_MAX = 64
# How long a broker whose supervisor is gone may take to stop cleanly.
ORPHAN_DEADLINE_S = 30.0
GARBAGE_THRESHOLD = 50_000

_DESCRIPTION = """Run a broker that every Kafka client can use.

Without options it listens on 127.0.0.1:9092, answers /metrics and /health on 127.0.0.1:9644 and keeps its data in
./penstock-data. A gateway beside it has the console, REST and the schema registry on 127.0.0.1:8080. Settings have
Kafka's names; all of them are in docs/configuration.md. Where a setting is given more than once, -o wins over the
other options, and those over the file."""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if not __debug__:
        return _refuse("penstock relies on its assertions: run it without -O and without PYTHONOPTIMIZE")
    try:
        config = BrokerConfig.load(
            options.config,
            options.override,
            data_dir=options.data_dir,
            listen=options.listen,
            advertise=options.advertise,
            http=options.http,
            gateway=options.gateway,
            node_id=options.node_id,
            rack=options.rack,
            metadata=options.metadata,
            cluster=options.cluster,
        )
        # One that is supervised leaves the gateway to whoever holds it.
        is_refused = options.no_gateway or options.supervised_by is not None
        spoken = ("--log-level", options.log_level, "--log-format", options.log_format)
        gateway = choose_gateway(config, is_refused, spoken)
        if options.brokers is not None:
            from penstock.cli.serve_many import plan_brokers, serve_many

            plans = plan_brokers(config, options.brokers, _without_brokers(arguments))
            return serve_many(plans, gateway)
    except PenstockError as error:
        return _refuse(str(error))
    node = None if options.supervised_by is None else config.node_id
    log_to_stderr(options.log_level, options.log_format, node)
    raise_file_limit()
    # Only here: an option that is wrong should be told before the broker is imported.
    import uvloop

    try:
        return uvloop.run(_serve(config, gateway, options.supervised_by))
    except PenstockError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(explain_start_failure(error, config))


async def _serve(config: BrokerConfig, choice: GatewayChoice | None, supervisor: int | None) -> int:
    gc.disable()  # nothing of what is imported is garbage
    from penstock.broker import Broker

    gc.freeze()
    gc.enable()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    broker = Broker(config)
    if supervisor is not None:
        return await _serve_supervised(broker, config, supervisor, stopping)
    await broker.start()
    _settle()
    # Behind the broker, which answers already: what the gateway takes to start keeps no client waiting.
    gateway = None
    if choice is not None:
        from penstock.cli.gateway_keeper import start_gateway

        gateway = start_gateway(choice, [_ready(broker)], _say, log.warning)
    _say(f"penstock: broker {broker.node_id} is ready")
    _say(f"  clients   {broker.endpoint}  (bootstrap.servers)")
    _say(f"  data      {config.data_dir.resolve()}")
    if broker.http_endpoint is not None:
        _say(f"  http      http://{broker.http_endpoint}/metrics  /health/live  /health/ready")
    if choice is not None and gateway is not None:
        _say(choice.line)
    _say(f"  stop      Ctrl-C, or: kill {os.getpid()}")
    _be_quick(config)
    code = await _end_of(broker, stopping, gateway)
    _say("penstock: stopping; a second signal ends at once, without a clean mark")
    if gateway is not None:
        await gateway.stop()
    await broker.stop()
    return code


async def _serve_supervised(broker: "Broker", config: BrokerConfig, number: int, stopping: asyncio.Event) -> int:
    """The same for a broker that another process keeps running, which does the talking."""
    from penstock.cli.held_process import tell_holder, watch_holder

    loop = asyncio.get_running_loop()

    def be_orphaned() -> None:
        loop.remove_reader(held)
        stopping.set()
        loop.call_later(ORPHAN_DEADLINE_S, os._exit, 1)

    held = watch_holder(number, be_orphaned)
    await broker.start()
    _settle()
    tell_holder(held, _ready(broker).as_json())
    _be_quick(config)
    code = await _end_of(broker, stopping)
    await broker.stop()
    return code


def _settle() -> None:
    """The interpreter, as suits a broker that has started."""
    # What is there now stays: the collector need not walk it again. New garbage is rarely cyclic here, so it may wait.
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)


def _be_quick(config: BrokerConfig) -> None:
    """What makes a broker answer sooner, and need not keep its first client waiting."""
    if config.penstock_scheduler_slice_us:
        from penstock.cli.scheduler_slice import shorten_slices

        shorten_slices(config.penstock_scheduler_slice_us)


def _ready(broker: "Broker") -> "Ready":
    from penstock.cli.supervise import Ready

    http = None if broker.http_endpoint is None else str(broker.http_endpoint)
    return Ready(broker.node_id, os.getpid(), str(broker.endpoint), str(broker.bound), http)


async def _end_of(broker: "Broker", stopping: asyncio.Event, gateway: "GatewayKeeper | None" = None) -> int:
    """Wait until somebody stops the broker, or until it cannot go on itself and has said why; gives the exit code."""
    from penstock.cli.supervise import first_of

    companions = [] if gateway is None else [gateway.has_failed]
    await first_of(stopping, broker.has_given_up, *companions)
    if stopping.is_set():
        return 0
    if gateway is None or not gateway.has_failed.is_set():
        return GAVE_UP
    _warn(gateway.failure)
    return USAGE_ERROR


def explain_start_failure(error: OSError, config: BrokerConfig) -> str:
    """One sentence on why the system would not let the broker start, with what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"{_address(error, config)} is in use by another process: stop that one, or choose another address"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{_address(error, config)} is not an address of this machine: listen on one that is, or on 0.0.0.0"
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"no permission for {error.filename}: give this user the directory, or choose another --data-dir"
    if isinstance(error, PermissionError):
        return f"no permission for a port ({error.strerror}): choose one above 1023 with --listen and --http"
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}; check --data-dir"
    return f"the system says: {error.strerror or error}; check --listen and --http"


def _address(error: OSError, config: BrokerConfig) -> str:
    # Which of the two it was stands only in the text: ('127.0.0.1', 9092).
    if config.http is not None and f", {config.http.port})" in str(error) and config.http != config.listen:
        return f"--http {config.http}"
    return f"--listen {config.listen}"


def raise_file_limit() -> None:
    """Every segment and every connection takes a descriptor: take as many as the system grants."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS says "unlimited" and then refuses more than OPEN_MAX.
    for limit in (hard, 10240):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return
        except (ValueError, OSError):
            continue


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal. argparse would ask shutil, with every option it is told of and not only for help."""

    def __init__(self, prog: str) -> None:
        said = os.environ.get("COLUMNS", "")
        columns = int(said) if said.isdecimal() else 0
        if not columns:
            with contextlib.suppress(OSError):  # it is no terminal
                columns = os.get_terminal_size().columns
        super().__init__(prog, width=(columns or 80) - 2)  # some terminals say 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock serve",
        description=_DESCRIPTION,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--data-dir", type=Path, metavar="DIR", help="where the logs and the metadata are kept (log.dirs)")
    add("--listen", metavar="HOST:PORT", help="where clients connect; port 0 takes a free one (listeners)")
    add("--advertise", metavar="HOST:PORT", help="what clients are told to connect to (advertised.listeners)")
    add("--http", metavar="HOST:PORT", help="where /metrics and /health are; empty for none (penstock.http.listen)")
    gateway = parser.add_mutually_exclusive_group().add_argument
    gateway(
        "--gateway",
        metavar="HOST:PORT",
        help="where the console, REST and the schema registry are; default: 127.0.0.1:8080 (penstock.gateway.listen)",
    )
    gateway("--no-gateway", action="store_true", help="none of these: a broker alone")
    add("--node-id", type=int, metavar="N", help="this broker's id in the cluster (node.id)")
    add("--rack", metavar="NAME", help="where it stands; replicas are spread over racks (broker.rack)")
    add(
        "--metadata",
        metavar="URL",
        help="where the cluster's metadata is: sqlite:FILE, etcd://HOST:PORT,HOST:PORT... (penstock.metadata)",
    )
    add("--cluster", metavar="NAME", help="which cluster of that store this broker joins (penstock.cluster)")
    add(
        "--brokers",
        type=_number_of_brokers,
        metavar="N",
        help="so many brokers, each in a process of its own: ports, ids and directories count up from this one's",
    )
    add("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    add("-o", dest="override", action="append", default=[], metavar="NAME=VALUE", help="one setting; repeatable")
    add("--log-level", choices=LEVELS, default="info", help="default: info")
    add("--log-format", choices=FORMATS, default="plain", help="default: plain")
    add("--supervised-by", type=int, help=argparse.SUPPRESS)
    return parser


def _number_of_brokers(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= BROKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {BROKERS_MAX}")
    return int(text)


def _without_brokers(arguments: Sequence[str]) -> tuple[str, ...]:
    """What each of several brokers is told: the same, but to be one."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--brokers")
    return tuple(parser.parse_known_args(arguments)[1])


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _warn(line: str) -> None:
    sys.stderr.write(f"penstock serve: {line}\n")
    sys.stderr.flush()


def _refuse(why: str) -> int:
    sys.stderr.write(f"penstock serve: {why}\n")
    return USAGE_ERROR
