"""Where a cluster's metadata is, as `penstock.metadata` and `--metadata` spell it.

    (empty)                                  SQLite in the data directory
    sqlite:FILE                              SQLite in a file that several brokers of one host share
    etcd://[USER:PASSWORD@]HOST:PORT,…       etcd; etcds:// with TLS

Called by the broker's table to refuse a bad address and by cluster.open_store to read a good one.
A fault never repeats the address: it may hold a password.
"""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from penstock.config.addresses import parse_endpoint
from penstock.model import Endpoint

_FORMS = "sqlite:FILE, etcd://HOST:PORT,HOST:PORT or etcds://HOST:PORT,HOST:PORT"


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """`file` is None for the one in the data directory."""

    file: Path | None


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    endpoints: tuple[Endpoint, ...]
    has_tls: bool
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Fit for logs: without user and password."""
        return f"etcd{'s' if self.has_tls else ''}://{','.join(map(str, self.endpoints))}"


def parse_metadata_address(text: str) -> SqliteAddress | EtcdAddress:
    """Raises ValueError with what is wrong."""
    scheme, separator, rest = text.partition(":")
    if not text:
        return SqliteAddress(None)
    if separator and scheme == "sqlite":
        if not rest:
            raise ValueError("sqlite: names no file")
        if rest.startswith("//"):
            raise ValueError("write sqlite:FILE, without slashes before the file's own")
        return SqliteAddress(Path(rest))
    if separator and scheme in ("etcd", "etcds") and rest.startswith("//"):
        return _parse_etcd(rest[2:], has_tls=scheme == "etcds")
    raise ValueError(f"it has to be empty or of the form {_FORMS}")


def metadata_fault(text: str) -> str | None:
    try:
        parse_metadata_address(text)
    except ValueError as fault:
        return str(fault)
    return None


def _parse_etcd(rest: str, *, has_tls: bool) -> EtcdAddress:
    credentials, at, hosts = rest.rpartition("@")
    user, colon, password = credentials.partition(":")
    if at and not (user and colon and password):
        raise ValueError("what stands before the @ has to be USER:PASSWORD")
    if not hosts:
        raise ValueError("it names no etcd endpoint")
    endpoints: list[Endpoint] = []
    for number, host in enumerate(hosts.rstrip("/").split(","), 1):
        try:
            endpoint = parse_endpoint(host)
        except ValueError:
            endpoint = Endpoint("", 0)
        # By number: what looks like a host may be half of a password.
        if not endpoint.host or not endpoint.port or set(endpoint.host) & set("/?@"):
            raise ValueError(
                f"its endpoint {number} is no HOST:PORT (a password's own @ : / are written %40 %3A %2F; the cluster's "
                "name under etcd is the setting penstock.cluster)"
            )
        if endpoint in endpoints:
            raise ValueError(f"its endpoint {number} is named twice")
        endpoints.append(endpoint)
    return EtcdAddress(tuple(endpoints), has_tls, unquote(user), unquote(password))
