"""Opens the metadata store a broker is told to use.

Called by broker with its configuration, and by tools and tests with an address. gRPC is imported only for etcd: a
broker on SQLite neither needs it nor pays for it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.sqlite_store import POLL_ALONE_S, POLL_SHARED_S, open_sqlite_store
from penstock.cluster.store import MetadataStore
from penstock.config import BrokerConfig
from penstock.config.metadata_address import EtcdAddress, SqliteAddress, parse_metadata_address
from penstock.errors import InvalidConfig

if TYPE_CHECKING:
    import grpc

METADATA_FILE = "metadata.db"
CONNECT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM; empty for none. Without a CA, those the system trusts vouch for the server."""

    ca: str = ""
    cert: str = ""
    key: str = ""


async def open_configured_store(config: BrokerConfig) -> MetadataStore:
    """Raises InvalidConfig and StoreUnusable."""
    return await open_store(
        config.penstock_metadata,
        config.data_dir,
        tls=TlsFiles(
            config.penstock_metadata_tls_ca, config.penstock_metadata_tls_cert, config.penstock_metadata_tls_key
        ),
        user=config.penstock_metadata_user,
        password=config.penstock_metadata_password,
        connect_timeout_s=config.penstock_metadata_connect_timeout_ms / 1000,
    )


async def open_store(
    url: str,
    data_dir: Path,
    *,
    tls: TlsFiles | None = None,
    user: str = "",
    password: str = "",
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> MetadataStore:
    """`url` as penstock.metadata has it; user and password of the url win over those given beside it."""
    try:
        address = parse_metadata_address(url)
    except ValueError as fault:
        raise InvalidConfig(f"penstock.metadata cannot be used: {fault}") from None
    tls = tls or TlsFiles()
    if isinstance(address, SqliteAddress):
        return await _open_sqlite(address, data_dir, tls, user)
    if address.user:
        user, password = address.user, address.password
    if bool(user) != bool(password):
        raise InvalidConfig("penstock.metadata.user and penstock.metadata.password need each other")
    return await _open_etcd(address, tls, user, password, connect_timeout_s)


async def _open_sqlite(address: SqliteAddress, data_dir: Path, tls: TlsFiles, user: str) -> MetadataStore:
    if tls != TlsFiles() or user:
        raise InvalidConfig("TLS, user and password are for etcd; penstock.metadata names SQLite")
    if address.file is None:
        return await open_sqlite_store(data_dir / METADATA_FILE, poll_s=POLL_ALONE_S)
    if not address.file.parent.is_dir():
        raise InvalidConfig(f"penstock.metadata: there is no directory {address.file.parent}")
    if address.file.is_dir():
        raise InvalidConfig(f"penstock.metadata: {address.file} is a directory, not a file")
    return await open_sqlite_store(address.file, poll_s=POLL_SHARED_S)


async def _open_etcd(
    address: EtcdAddress, tls: TlsFiles, user: str, password: str, connect_timeout_s: float
) -> MetadataStore:
    if not address.has_tls and tls != TlsFiles():
        raise InvalidConfig("penstock.metadata.tls is set, but penstock.metadata says etcd:// and not etcds://")
    if bool(tls.cert) != bool(tls.key):
        raise InvalidConfig("penstock.metadata.tls.cert and penstock.metadata.tls.key need each other")
    try:
        from penstock.cluster.etcd_client import EtcdClient
        from penstock.cluster.etcd_store import EtcdStore
    except ImportError as error:
        raise InvalidConfig(
            f'metadata in etcd needs two more packages ({error}): pip install "penstock[etcd]"'
        ) from None
    credentials = _read_credentials(tls) if address.has_tls else None
    client = EtcdClient(address.endpoints, credentials, user, password)
    try:
        await client.connect(connect_timeout_s)
    except BaseException:
        await client.close()
        raise
    return EtcdStore(client)


def _read_credentials(tls: TlsFiles) -> "grpc.ChannelCredentials":
    import grpc

    read: dict[str, bytes | None] = {}
    for name, file in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)):
        try:
            read[name] = Path(file).read_bytes() if file else None
        except OSError as error:
            raise InvalidConfig(f"penstock.metadata.tls.{name}: cannot read {file}: {error.strerror}") from None
        if read[name] is not None and b"-----BEGIN" not in (read[name] or b""):
            raise InvalidConfig(f"penstock.metadata.tls.{name}: {file} is no PEM file")
    return grpc.ssl_channel_credentials(read["ca"], read["key"], read["cert"])
