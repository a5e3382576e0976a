"""Addresses of metadata stores: what is opened, what is refused, and in which words."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster.open_store import TlsFiles, open_configured_store, open_store
from penstock.cluster.sqlite_store import SqliteStore
from penstock.cluster.store import Put
from penstock.config import BrokerConfig
from penstock.config.metadata_address import EtcdAddress, SqliteAddress, parse_metadata_address
from penstock.errors import InvalidConfig
from penstock.model import Endpoint


async def test_without_an_address_the_metadata_is_in_the_data_directory(tmp_path):
    store = await open_store("", tmp_path)
    assert isinstance(store, SqliteStore)
    assert (tmp_path / "metadata.db").exists()
    await store.close()


async def test_two_brokers_share_the_file_their_settings_name(tmp_path):
    stores = []
    for node in (1, 2):
        static = {"log.dirs": str(tmp_path / str(node)), "penstock.metadata": f"sqlite:{tmp_path / 'shared.db'}"}
        stores.append(await open_configured_store(BrokerConfig(static)))
    await stores[0].txn([], [Put("/a", b"1")])
    assert (await stores[1].get("/a")).value == b"1"
    for store in stores:
        await store.close()


def test_etcd_addresses_name_hosts_user_and_password():
    assert parse_metadata_address("etcd://a:1,[::1]:2") == EtcdAddress((Endpoint("a", 1), Endpoint("::1", 2)), False)
    found = parse_metadata_address("etcds://me:s%40cret@a:1/")
    assert found == EtcdAddress((Endpoint("a", 1),), True, "me", "s@cret")
    assert "s@cret" not in f"{found} {found!r}"
    assert parse_metadata_address("sqlite:some/file") == SqliteAddress(Path("some/file"))


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("etcd:a:1", "has to be empty or of the form"),
        ("http://a:1", "has to be empty or of the form"),
        ("metadata.db", "has to be empty or of the form"),
        ("sqlite:", "names no file"),
        ("sqlite:///var/file", "without slashes"),
        ("etcd://", "names no etcd endpoint"),
        ("etcd://me:secret@", "names no etcd endpoint"),
        ("etcd://a", "endpoint 1 is no HOST:PORT"),
        ("etcd://a:1,b", "endpoint 2 is no HOST:PORT"),
        ("etcd://a:0", "endpoint 1 is no HOST:PORT"),
        ("etcd://a:99999", "endpoint 1 is no HOST:PORT"),
        ("etcd://:1", "endpoint 1 is no HOST:PORT"),
        ("etcd://a:1,a:1", "endpoint 2 is named twice"),
        ("etcd://a:1/cluster", "endpoint 1 is no HOST:PORT"),
        ("etcd://me:secret", "endpoint 1 is no HOST:PORT"),
        ("etcd://me:s/secret@a:1/x", "endpoint 1 is no HOST:PORT"),
        ("etcd://me@a:1", "USER:PASSWORD"),
        ("etcd://:secret@a:1", "USER:PASSWORD"),
    ],
)
async def test_a_malformed_address_is_refused_at_start_without_showing_its_password(tmp_path, url, fault):
    with pytest.raises(InvalidConfig, match=fault) as opened:
        await open_store(url, tmp_path)
    with pytest.raises(InvalidConfig, match=fault) as configured:
        BrokerConfig({"penstock.metadata": url})
    assert "secret" not in f"{opened.value} {configured.value}"


@pytest.mark.parametrize(
    ("url", "options", "fault"),
    [
        ("", {"user": "me", "password": "x"}, "are for etcd"),
        ("", {"tls": TlsFiles("ca.pem")}, "are for etcd"),
        ("sqlite:no-such-directory/file", {}, "there is no directory"),
        ("sqlite:.", {}, "is a directory"),
        ("etcd://a:1", {"tls": TlsFiles("ca.pem")}, "not etcds://"),
        ("etcd://a:1", {"user": "me"}, "need each other"),
        ("etcds://a:1", {"tls": TlsFiles(cert="cert.pem")}, "need each other"),
        ("etcds://a:1", {"tls": TlsFiles("no-such.pem")}, r"tls\.ca: cannot read no-such\.pem"),
        ("etcds://a:1", {"tls": TlsFiles(__file__)}, "is no PEM file"),
    ],
)
async def test_settings_that_do_not_fit_the_store_are_refused(tmp_path, url, options, fault):
    with pytest.raises(InvalidConfig, match=fault):
        await open_store(url, tmp_path, **options)


async def test_without_the_extra_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    for name in [name for name in sys.modules if name.startswith("penstock.cluster.etcd_")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InvalidConfig, match=r'pip install "penstock\[etcd\]"'):
        await open_store("etcd://127.0.0.1:1", tmp_path)


def test_a_broker_on_sqlite_imports_neither_grpc_nor_protobuf():
    program = "import sys, penstock.broker; print(sorted({'grpc', 'google.protobuf'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nobody_reads_the_address_or_the_password_over_the_wire():
    from penstock.config.broker_settings import BROKER_SETTINGS

    assert BROKER_SETTINGS["penstock.metadata"].sensitive
    assert BROKER_SETTINGS["penstock.metadata.password"].sensitive
