"""Addresses as settings spell them: listeners, the HTTP address, where a cluster is found and traces go, limits per
address.

Called by the broker's table to refuse a bad one and by BrokerConfig to read a good one; by clients of a cluster.
"""

import re
from ipaddress import ip_address

from penstock.model import Endpoint

# Until TLS and SASL are there, any other protocol would promise what the listener does not do.
PROTOCOL = "PLAINTEXT"
KAFKA_PORT = 9092
WILDCARDS = frozenset({"", "0.0.0.0", "::"})
_NO_COLLECTOR = "no address of a collector; write it as http://host:4318"


def parse_endpoint(text: str) -> Endpoint:
    """`host:port`, `[v6]:port` or `PLAINTEXT://host:port`; raises ValueError with what is wrong."""
    protocol, separator, address = text.rpartition("://")
    if separator and protocol.upper() != PROTOCOL:
        raise ValueError(f"{protocol!r} is not a protocol served here; use {PROTOCOL}://host:port")
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ValueError(f"{text!r} is no host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, as [::1]:9092")
    return Endpoint(host, int(port))


def parse_bootstrap(text: str) -> list[Endpoint]:
    """`host:port,host:port…`; 9092 where no port is given, as librdkafka has it. Raises ValueError."""
    parts = [part.strip().rpartition("://")[2] for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError("no address of a broker is given; write it as 127.0.0.1:9092")
    return [parse_endpoint(part if re.search(r":\d+$", part) else f"{part}:{KAFKA_PORT}") for part in parts]


def listeners_fault(listeners: tuple[str, ...]) -> str | None:
    if len(listeners) > 1:
        return "one listener only"
    for listener in listeners:
        try:
            parse_endpoint(listener)
        except ValueError as fault:
            return str(fault)
    return None


def http_fault(address: str) -> str | None:
    return listeners_fault((address,)) if address else None


def collector_fault(url: str) -> str | None:
    """What is wrong with the address that traces are sent to."""
    if not url:
        return None
    # Only here: most brokers send no traces.
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of brackets
        return _NO_COLLECTOR
    if not is_address or parts.query or parts.fragment or not url.isascii() or " " in url:
        return _NO_COLLECTOR
    if parts.username is not None:
        return "holds a user or a password; give those to the collector with OTEL_EXPORTER_OTLP_HEADERS"
    return None


def overrides_fault(overrides: tuple[str, ...]) -> str | None:
    try:
        parse_overrides(overrides)
    except ValueError as fault:
        return str(fault)
    return None


def parse_overrides(overrides: tuple[str, ...]) -> dict[str, int]:
    """`address:count` pairs, keyed by the address in the form the kernel gives a peer's."""
    limits: dict[str, int] = {}
    for override in overrides:
        address, _, count = override.rpartition(":")
        try:
            if not (count.isascii() and count.isdigit()):
                raise ValueError
            limits[str(ip_address(address.strip("[]")))] = int(count)
        except ValueError:
            raise ValueError(f"{override!r} is no address:count") from None
    return limits
