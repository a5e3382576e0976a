"""Can a TCP connection be made to an address, and if not, why not.

Called by admin.cluster before it hands over to librdkafka, and by `penstock doctor`.
"""

import socket
from enum import Enum
from typing import NamedTuple

from penstock.model import Endpoint

CONNECT_DEADLINE_S = 3.0


class Reached(Enum):
    YES = "connects"
    REFUSED = "connection refused: nothing listens there"
    NO_ANSWER = "no answer: a firewall drops the packets, or the machine is off"
    UNKNOWN_HOST = "the host name is not known here"
    UNREACHABLE = "there is no way to that network from here"


class Attempt(NamedTuple):
    endpoint: Endpoint
    state: Reached

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.state.value}"


def reach(endpoint: Endpoint, timeout_s: float = CONNECT_DEADLINE_S) -> Attempt:
    try:
        socket.create_connection((endpoint.host, endpoint.port), min(timeout_s, CONNECT_DEADLINE_S)).close()
    except socket.gaierror:
        return Attempt(endpoint, Reached.UNKNOWN_HOST)
    except ConnectionRefusedError:
        return Attempt(endpoint, Reached.REFUSED)
    except TimeoutError:
        return Attempt(endpoint, Reached.NO_ANSWER)
    except OSError:
        return Attempt(endpoint, Reached.UNREACHABLE)
    return Attempt(endpoint, Reached.YES)
