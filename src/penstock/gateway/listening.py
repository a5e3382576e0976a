"""An address to listen at: taken, or why it cannot be had.

Called by gateway.server, and by cli.gateway_choice before a gateway is started: it imports nothing of the gateway.
"""

import errno
import socket

from penstock.model import Endpoint

DEFAULT_LISTEN = Endpoint("127.0.0.1", 8080)
BACKLOG = 1024


def listen_at(where: Endpoint) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        where.host or None, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # Else the connections of a gateway that just ended would keep the next one from the port for a minute.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def address_fault(error: OSError, where: Endpoint) -> str:
    """What the system has against it."""
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process"
    if isinstance(error, PermissionError):
        return f"there is no permission for {where}, as for most ports below 1024"
    return f"{where} cannot be used ({error.strerror or error})"
