"""Which gateway `serve` and `cluster up` start beside their brokers: the one asked for, the usual one, or none.

Called by cli.serve and cli.cluster_up, which choose, and by cli.gateway_keeper, which starts what was chosen.
Laws:
- One that was asked for by name starts, or nothing does: it is refused before a broker has opened anything.
- One that is there by default never keeps a broker from serving: `why_not` is asked once the brokers answer, and what
  it says is logged in one line.
"""

from importlib.util import find_spec
from typing import NamedTuple

from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig
from penstock.gateway.listening import DEFAULT_LISTEN, address_fault, listen_at
from penstock.model import Endpoint

SETTING = "penstock.gateway.listen"
# Looked for, not imported: they are the gateway's, and would cost every broker its memory.
PACKAGES = ("starlette", "uvicorn", "httptools", "websockets", "orjson")


class GatewayChoice(NamedTuple):
    listen: Endpoint
    is_asked: bool  # by name, in a file, an option or a setting
    arguments: tuple[str, ...] = ()  # what else it is told when it starts

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it, once the port is known."""
        return f"http://{Endpoint(_reachable(self.listen.host), self.listen.port)}/"

    @property
    def line(self) -> str:
        """What stands among the addresses of a server that is ready; the gateway itself still starts then."""
        where = self.url if self.listen.port else "a free port"
        return f"  console   {where}  (with REST and the schema registry, in a moment)"

    def why_not(self) -> str | None:
        """Why it could not start now. A few system calls: the gateway itself may still find more."""
        missing = [name for name in PACKAGES if find_spec(name) is None]
        if missing:
            return f"{', '.join(missing)} is not installed (pip install penstock)"
        try:
            listen_at(self.listen).close()
        except OSError as error:
            return address_fault(error, self.listen)
        return None

    def complaint(self, why: str) -> str:
        what = "the gateway cannot start" if self.is_asked else "no gateway (console, REST, schema registry)"
        return f"{what}: {why}; --gateway HOST:PORT puts it elsewhere, --no-gateway does without"


def choose_gateway(config: BrokerConfig, is_refused: bool, arguments: tuple[str, ...] = ()) -> GatewayChoice | None:
    """`is_refused`: --no-gateway was given. Raises InvalidConfig where one was asked for that cannot start."""
    if is_refused:
        return None
    if SETTING not in config.static:
        return GatewayChoice(DEFAULT_LISTEN, False, arguments)
    if config.gateway is None:
        return None
    choice = GatewayChoice(config.gateway, True, arguments)
    why = choice.why_not()
    if why is not None:
        raise InvalidConfig(choice.complaint(why))
    return choice


def _reachable(host: str) -> str:
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
