"""`penstock serve --brokers N`: what each of the brokers is told, and what is printed of them.

Called by cli.serve. Ports, node ids and directories count up from those of one broker; a port of 0 stays 0, and each
takes a free one. All share one metadata store: SQLite beside their directories, unless --metadata names another.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence

from penstock.cli.gateway_choice import GatewayChoice
from penstock.cli.gateway_keeper import GatewayKeeper, start_gateway
from penstock.cli.supervise import BrokerPlan, Ready, Supervisor, run_until_stopped
from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig
from penstock.model import Endpoint

METADATA_FILE = "metadata.db"
PORT_MAX = 65535


def plan_brokers(config: BrokerConfig, count: int, arguments: Sequence[str]) -> list[BrokerPlan]:
    """`config` is what a single broker would have had; `arguments` are what `serve` was given besides."""
    root = config.data_dir
    shared: dict[str, str] = {}
    if not config.value_text("penstock.metadata"):
        shared["penstock.metadata"] = f"sqlite:{(root / METADATA_FILE).absolute()}"
    if not config.broker_rack:
        # Replicas of one partition on one host would all be lost with it.
        shared["broker.rack"] = socket.gethostname()
    plans: list[BrokerPlan] = []
    for number in range(count):
        node_id = config.node_id + number
        data_dir = root / f"broker-{node_id}"
        settings = {
            "node.id": str(node_id),
            "log.dirs": str(data_dir),
            "listeners": str(counted(config.listen, number)),
            **shared,
        }
        if config.advertised_listeners:
            settings["advertised.listeners"] = str(counted(config.advertise, number))
        if config.http is not None:
            settings["penstock.http.listen"] = str(counted(config.http, number))
        plans.append(BrokerPlan(node_id, tuple(arguments), settings, data_dir))
    return plans


def counted(endpoint: Endpoint, number: int) -> Endpoint:
    """The address of the broker `number` after the one at `endpoint`."""
    if endpoint.port == 0:
        return endpoint
    if endpoint.port + number > PORT_MAX:
        raise InvalidConfig(f"{endpoint}: the ports of all brokers go beyond {PORT_MAX}; begin with a lower one")
    return Endpoint(endpoint.host, endpoint.port + number)


def serve_many(plans: Sequence[BrokerPlan], gateway: GatewayChoice | None) -> int:
    def on_ready(ready: list[Ready]) -> GatewayKeeper | None:
        keeper = start_gateway(gateway, ready, _say, _warn)
        _report(plans, ready, None if keeper is None else gateway)
        return keeper

    return asyncio.run(run_until_stopped(Supervisor(plans, _warn), on_ready, _warn))


def _report(plans: Sequence[BrokerPlan], ready: Sequence[Ready], gateway: GatewayChoice | None) -> None:
    lines = [f"penstock: {len(ready)} brokers are ready"]
    lines.append(f"  clients   {','.join(one.endpoint for one in ready)}  (bootstrap.servers)")
    for plan, one in zip(plans, ready, strict=True):
        http = "" if one.http is None else f"  http://{one.http}/metrics"
        lines.append(
            f"  broker {one.node_id}  {one.endpoint}  process {one.process_id}  {plan.data_dir.resolve()}{http}"
        )
    if gateway is not None:
        lines.append(gateway.line)
    lines.append(f"  stop      Ctrl-C, or: kill {os.getpid()}")
    _say("\n".join(lines))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _warn(line: str) -> None:
    sys.stderr.write(f"penstock serve: {line}\n")
    sys.stderr.flush()
