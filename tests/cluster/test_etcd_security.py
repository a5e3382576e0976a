"""A real etcd that asks for passwords or certificates: who is let in, who is not, and what they are told."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cluster.open_store import TlsFiles, open_store
from penstock.cluster.store import Put, StoreUnusable, Unavailable
from penstock.testing.etcd import EtcdCluster, EtcdTls, encoded, etcd_binary

USER, PASSWORD = "penstock", "p@ss:w/rd"


@pytest.fixture(scope="module", autouse=True)
def etcd_is_here() -> None:
    if etcd_binary() is None:
        pytest.skip("no etcd on this machine (Debian: apt-get install etcd-server)")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("guarded"), members=1) as cluster:
        cluster.enable_auth(USER, PASSWORD)
        yield cluster


async def test_user_and_password_open_an_etcd_that_asks_for_them(guarded):
    store = await open_store(guarded.url, Path(), user=USER, password=PASSWORD)
    written = await store.txn([], [Put("/a", b"1")])
    assert (await store.get("/a")).mod_revision == written.revision
    await store.close()


async def test_a_password_may_stand_in_the_address(guarded):
    store = await open_store(guarded.url.replace("etcd://", "etcd://penstock:p%40ss%3Aw%2Frd@"), Path())
    await store.get("/a")
    await store.close()


@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD), ("", "")])
async def test_who_is_not_let_in_is_told_so_at_once_and_no_password_is_shown(guarded, user, password):
    with pytest.raises(StoreUnusable, match="does not let this broker in") as caught:
        await open_store(guarded.url, Path(), user=user, password=password)
    assert PASSWORD not in str(caught.value)
    assert "wrong" not in str(caught.value)


async def test_a_password_for_an_etcd_that_asks_for_none_is_refused(tmp_path):
    with (
        EtcdCluster(tmp_path, members=1) as open_to_all,
        pytest.raises(StoreUnusable, match="authentication is not enabled"),
    ):
        await open_store(open_to_all.url, Path(), user=USER, password=PASSWORD)


async def test_tokens_that_etcd_forgot_are_renewed_for_calls_leases_and_watches(guarded):
    store = await open_store(guarded.url, Path(), user=USER, password=PASSWORD)
    first = await store.txn([], [Put("/t", b"1")])
    lease = await store.lease(60)
    watch = store.watch("/t", first.revision)
    await anext(watch)
    waiting = asyncio.ensure_future(anext(watch))
    await store.get("/t")
    # Tokens live in the memory of the members.
    await asyncio.to_thread(guarded.restart, 0)
    last = await store.txn([], [Put("/t", b"2")])
    assert (await asyncio.wait_for(waiting, 30)).number == last.revision
    store._client._token = "forged.1"
    await lease.renew()
    store._client._token = "forged.2"
    again = store.watch("/t", first.revision)
    assert [(await asyncio.wait_for(anext(again), 30)).number for _ in range(2)] == [first.revision, last.revision]
    await store.close()


async def test_a_user_of_one_prefix_works_there_and_is_told_where_it_may_not(guarded):
    token = guarded.ask(0, "auth/authenticate", {"name": "root", "password": PASSWORD})["token"]
    guarded.ask(0, "auth/user/add", {"name": "narrow", "password": "x"}, token)
    guarded.ask(0, "auth/role/add", {"name": "narrow"}, token)
    prefix = {"permType": "READWRITE", "key": encoded(b"/penstock/one/"), "range_end": encoded(b"/penstock/one0")}
    guarded.ask(0, "auth/role/grant", {"name": "narrow", "perm": prefix}, token)
    guarded.ask(0, "auth/user/grant", {"user": "narrow", "role": "narrow"}, token)
    store = await open_store(guarded.url, Path(), user="narrow", password="x")
    written = [(await store.txn([], [Put("/penstock/one/a", b"%d" % n)])).revision for n in range(2)]
    assert (await store.range("/penstock/one/")).items[0].value == b"1"
    watch = store.watch("/penstock/one/", written[0])
    assert [(await asyncio.wait_for(anext(watch), 20)).number for _ in range(2)] == written
    with pytest.raises(Unavailable, match="does not let this broker in"):
        await store.range("/penstock/two/")
    with pytest.raises(Unavailable, match="does not let this broker watch"):
        await asyncio.wait_for(anext(store.watch("/penstock/two/", 1)), 20)
    await store.close()


Certificate = Callable[..., TlsFiles]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Makes authorities and the certificates they sign."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    directory = tmp_path_factory.mktemp("certificates")

    def make(name: str, signed_by: TlsFiles | None = None, address: str = "IP:127.0.0.1") -> TlsFiles:
        cert, key = directory / f"{name}.pem", directory / f"{name}.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-out", str(cert), "-keyout", str(key)]
        if signed_by is not None:
            command += ["-CA", signed_by.cert, "-CAkey", signed_by.key, "-addext", f"subjectAltName={address}"]
            command += ["-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(command, check=True, capture_output=True)
        return TlsFiles(signed_by.cert if signed_by else str(cert), str(cert), str(key))

    return make


@pytest.fixture(scope="module")
def authority(certificate: Certificate) -> TlsFiles:
    return certificate("authority")


@pytest.fixture(scope="module")
def encrypted(
    tmp_path_factory: pytest.TempPathFactory, certificate: Certificate, authority: TlsFiles
) -> Iterator[EtcdCluster]:
    server = certificate("server", authority)
    tls = EtcdTls(Path(server.ca), Path(server.cert), Path(server.key))
    with EtcdCluster(tmp_path_factory.mktemp("encrypted"), members=1, tls=tls) as cluster:
        yield cluster


async def test_certificates_open_an_etcd_that_asks_for_them(encrypted, certificate, authority):
    store = await open_store(encrypted.url, Path(), tls=certificate("broker", authority))
    written = await store.txn([], [Put("/a", b"1")])
    assert (await anext(store.watch("/a", written.revision))).number == written.revision
    await store.close()


async def test_a_server_whose_authority_is_another_is_not_trusted(encrypted, certificate, authority):
    mine = certificate("broker", authority)
    stranger = certificate("stranger")
    with pytest.raises(StoreUnusable, match=r"(?i)certificate"):
        await open_store(encrypted.url, Path(), tls=TlsFiles(stranger.cert, mine.cert, mine.key), connect_timeout_s=0.5)


async def test_a_server_whose_certificate_names_another_host_is_not_trusted(encrypted, certificate, authority):
    # The same server, by a name its certificate does not have. gRPC tells of the last address it tried, be it ::1.
    url = f"etcds://localhost:{encrypted.endpoints[0].port}"
    with pytest.raises(StoreUnusable, match="localhost"):
        await open_store(url, Path(), tls=certificate("broker", authority), connect_timeout_s=0.5)


async def test_a_broker_without_a_certificate_of_its_own_is_not_let_in(encrypted, authority):
    with pytest.raises(StoreUnusable, match="no etcd endpoint could be used"):
        await open_store(encrypted.url, Path(), tls=TlsFiles(authority.cert), connect_timeout_s=0.5)


async def test_plain_text_to_an_etcd_that_speaks_tls_is_refused_with_the_endpoint_named(encrypted):
    with pytest.raises(StoreUnusable, match=str(encrypted.endpoints[0])):
        await open_store(encrypted.url.replace("etcds", "etcd"), Path(), connect_timeout_s=0.5)
