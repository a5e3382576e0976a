"""The schema registry's client: what it asks, what it keeps, and how it fails."""

import pickle
import socket
import threading

import pytest
from fake_registry import FakeRegistry

from penstock.spark.formats import registry as module
from penstock.spark.formats.options import RegistryOptions
from penstock.spark.formats.registry import Registry, RegistryFailed, UnknownSchema

FAST = {"timeout_s": 2.0, "retries": 0}


def test_a_schema_is_asked_for_once_and_the_latest_every_time(registry: FakeRegistry) -> None:
    registry.register("a/b", '"int"')
    number = registry.register("a/b", '"long"')
    client = Registry(RegistryOptions((registry.url,)))
    assert client.latest("a/b").text == client.by_id(number).text == client.by_id(number).text == '"long"'
    assert client.latest("a/b").kind == "AVRO"
    assert registry.asked == ["/subjects/a%2Fb/versions/latest", "/schemas/ids/2", "/subjects/a%2Fb/versions/latest"]


def test_an_unknown_id_is_not_asked_for_again_and_again(registry: FakeRegistry) -> None:
    client = Registry(RegistryOptions((registry.url,)))
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="knows no schema id 77"):
            client.by_id(77)
    assert len(registry.asked) == 1
    with pytest.raises(UnknownSchema, match="knows no subject nothing"):
        client.latest("nothing")


def test_a_password_is_sent_and_never_shown() -> None:
    with FakeRegistry(user_info="me:secret") as registry:
        registry.register("s", '"int"')
        options = RegistryOptions((registry.url,), "me:secret", **FAST)
        assert Registry(options).latest("s").text == '"int"'
        assert "secret" not in repr(options)
        assert pickle.loads(pickle.dumps(options)) == options
        with pytest.raises(RegistryFailed, match=r"refuses access .*basic\.auth"):
            Registry(RegistryOptions((registry.url,), "me:wrong", **FAST)).latest("s")


def test_an_overloaded_registry_is_asked_again_and_a_second_one_steps_in(registry: FakeRegistry) -> None:
    registry.register("s", '"int"')
    registry.instead = [(503, b"", {}), (429, b"", {})]
    assert Registry(RegistryOptions((registry.url,), retries=2)).latest("s").text == '"int"'
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert Registry(RegistryOptions((nobody, registry.url), **FAST)).latest("s").text == '"int"'
        with pytest.raises(RegistryFailed, match=r"no schema registry answers .*check schema.registry.url"):
            Registry(RegistryOptions((nobody,), **FAST)).latest("s")


@pytest.mark.parametrize(
    ("status", "body", "headers", "why"),
    [
        (200, b"<html>", {}, "is no JSON"),
        (200, b"[" * 200_000, {}, "is no JSON"),
        (200, b"[]", {}, "is no object"),
        (200, b'{"schema": 5}', {}, "holds no schema"),
        (200, b'{"schema": "x", "references": {"a": 1}}', {}, "no list"),
        (200, b'{"schema": "x", "references": [{"name": "y"}]}', {}, "malformed reference"),
        (200, b" " * (module.ANSWER_BYTES_MAX + 1), {}, "longer than"),
        (302, b"", {"Location": "http://127.0.0.1:9/steal"}, "HTTP status 302"),
        (400, b"", {}, "HTTP status 400"),
    ],
)
def test_an_answer_that_is_none_is_told(
    registry: FakeRegistry, status: int, body: bytes, headers: dict[str, str], why: str
) -> None:
    registry.instead = [(status, body, headers)]
    with pytest.raises(RegistryFailed, match=why):
        Registry(RegistryOptions((registry.url,), **FAST)).latest("s")


def test_references_that_go_round_in_a_circle_are_told(registry: FakeRegistry) -> None:
    registry.register("a", '"int"', references=[{"name": "b", "subject": "b", "version": 1}])
    registry.register("b", '"int"', references=[{"name": "a", "subject": "a", "version": 1}])
    with pytest.raises(RegistryFailed, match="circle"):
        Registry(RegistryOptions((registry.url,), **FAST)).latest("a")


def test_a_registry_that_drips_bytes_does_not_hold_a_task_for_ever() -> None:
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                try:
                    while not stopped.wait(0.05):
                        connection.sendall(b" ")
                except OSError:
                    pass

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(RegistryFailed, match="took too long"):
            Registry(RegistryOptions((url,), timeout_s=0.3, retries=0)).latest("s")
        stopped.set()
        thread.join(10)


def test_a_missing_ca_file_is_told() -> None:
    with pytest.raises(RegistryFailed, match=r"ssl\.ca\.location"):
        Registry(RegistryOptions(("https://localhost",), ca_file="/nowhere.pem"))
