"""Who is let in, who is not, and whether the reason can be understood."""

import pickle
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_broker import ScriptedBroker, make_certificates

from penstock.model import TopicPartition
from penstock.spark.errors import BadOption, Unreachable
from penstock.spark.fetching import Cluster, ConnectionSettings, NotAdmitted, NotYetReadable, OffsetGone, TopicGone
from penstock.spark.fetching import connection as connection_module
from penstock.spark.fetching import pool as pool_module
from penstock.spark.fetching.scram import ScramClient, ScramFailure
from penstock.testing.embedded import EmbeddedBroker

USERS = {"ann": "pencil", "b,o=b": "päss,wörd"}
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def topics(port: int, deadline_s: float = 1.0, **settings: Any) -> list[str]:
    connection = ConnectionSettings((("localhost", port),), **{"request_timeout_s": 10.0, **settings})
    cluster = Cluster(connection, deadline_s=deadline_s)
    try:
        return list(cluster.topics(None))
    finally:
        cluster.close()


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("user", list(USERS))
def test_whoever_knows_the_password_is_let_in(mechanism: str, user: str) -> None:
    with ScriptedBroker(mechanisms=ALL, users=USERS) as broker:
        who = {"sasl_mechanism": mechanism, "username": user, "password": USERS[user]}
        assert topics(broker.port, security_protocol="SASL_PLAINTEXT", **who) == ["secret"]


@pytest.mark.parametrize("mechanism", ALL)
def test_a_wrong_password_is_told_at_once_and_tried_once(mechanism: str) -> None:
    with ScriptedBroker(mechanisms=ALL, users=USERS) as broker:
        who = {"sasl_mechanism": mechanism, "username": "ann", "password": "chalk"}
        with pytest.raises(NotAdmitted, match=rf"did not admit user ann by {mechanism}: Authentication failed") as told:
            topics(broker.port, security_protocol="SASL_PLAINTEXT", **who)
        assert "chalk" not in str(told.value)
        assert broker.connections == 1


@pytest.mark.parametrize("mechanism", ALL[1:])
def test_a_server_that_does_not_know_the_password_is_not_trusted(mechanism: str) -> None:
    with ScriptedBroker(mechanisms=ALL, users=USERS, is_honest=False) as broker:
        who = {"sasl_mechanism": mechanism, "username": "ann", "password": "pencil"}
        with pytest.raises(NotAdmitted, match="did not prove that it knows the password"):
            topics(broker.port, security_protocol="SASL_PLAINTEXT", **who)


def test_a_mechanism_the_broker_lacks_is_told_with_those_it_has() -> None:
    with ScriptedBroker(mechanisms=("PLAIN",), users=USERS) as broker:
        who = {"sasl_mechanism": "SCRAM-SHA-512", "username": "ann", "password": "pencil"}
        with pytest.raises(NotAdmitted, match="does not take SASL SCRAM-SHA-512: it offers PLAIN"):
            topics(broker.port, security_protocol="SASL_PLAINTEXT", **who)


def test_a_listener_that_wants_a_password_is_guessed_from_its_silence() -> None:
    with ScriptedBroker(mechanisms=ALL, users=USERS) as broker, pytest.raises(Unreachable, match=r"\(SASL\)"):
        topics(broker.port)


def test_tls_with_files_and_with_text_is_spoken(certificates: tuple[Path, Path]) -> None:
    certificate, key = certificates
    with ScriptedBroker(certificates=certificates, wants_client_certificate=True) as broker:
        files = {"ca_file": str(certificate), "certificate_file": str(certificate), "key_file": str(key)}
        assert topics(broker.port, security_protocol="SSL", **files) == ["secret"]
        text = {"ca_pem": certificate.read_text(), "certificate_pem": certificate.read_text()}
        assert topics(broker.port, security_protocol="SSL", key_pem=key.read_text(), **text) == ["secret"]
        # Under TLS 1.3 the refusal comes with the first answer, not with the handshake.
        with pytest.raises((NotAdmitted, Unreachable), match=r"(?i)certificate"):
            topics(broker.port, security_protocol="SSL", ca_file=str(certificate))


def test_tls_and_sasl_go_together(certificates: tuple[Path, Path]) -> None:
    with ScriptedBroker(certificates=certificates, mechanisms=ALL, users=USERS) as broker:
        who = {"sasl_mechanism": "SCRAM-SHA-512", "username": "ann", "password": "pencil"}
        assert topics(broker.port, security_protocol="SASL_SSL", ca_file=str(certificates[0]), **who) == ["secret"]


def test_a_key_with_a_password_is_opened_with_it(certificates: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = certificates
    locked = tmp_path / "locked.pem"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(key), "-out", str(locked), "-passout", "pass:sesame"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    ours = {"ca_file": str(certificate), "certificate_file": str(certificate), "key_file": str(locked)}
    with ScriptedBroker(certificates=certificates, wants_client_certificate=True) as broker:
        assert topics(broker.port, security_protocol="SSL", key_password="sesame", **ours) == ["secret"]
        for wrong in ({"key_password": "open"}, {}):
            with pytest.raises(BadOption, match=r"kafka\.ssl"):
                topics(broker.port, security_protocol="SSL", **wrong, **ours)


def test_a_stranger_s_certificate_is_refused_unless_told_otherwise(certificates: tuple[Path, Path]) -> None:
    with ScriptedBroker(certificates=certificates) as broker:
        with pytest.raises(NotAdmitted, match="was not accepted: self-signed certificate"):
            topics(broker.port, security_protocol="SSL")
        assert topics(broker.port, security_protocol="SSL", verify=False) == ["secret"]


def test_a_certificate_for_another_host_is_refused_unless_told_otherwise(certificates: tuple[Path, Path]) -> None:
    with ScriptedBroker(certificates=certificates) as broker:
        numbers = (("127.0.0.1", broker.port),)
        settings = {"security_protocol": "SSL", "ca_file": str(certificates[0])}
        strict = Cluster(ConnectionSettings(numbers, **settings), deadline_s=1.0)
        with pytest.raises(NotAdmitted, match=r"127\.0\.0\.1"):
            strict.topics(None)
        lax = Cluster(ConnectionSettings(numbers, check_hostname=False, **settings), deadline_s=1.0)
        assert list(lax.topics(None)) == ["secret"]
        lax.close()


def test_tls_to_a_plaintext_port_is_told_so(broker: EmbeddedBroker) -> None:
    port = int(broker.bootstrap.rsplit(":", 1)[1])
    with pytest.raises(NotAdmitted, match=r"does not speak TLS, but kafka\.security\.protocol is SSL"):
        topics(port, 30.0, security_protocol="SSL")
    with ScriptedBroker(hangs_up_at_tls=True) as silent, pytest.raises(NotAdmitted, match="does not speak TLS"):
        topics(silent.port, 30.0, security_protocol="SSL")


def test_plaintext_to_a_tls_port_is_told_so(certificates: tuple[Path, Path]) -> None:
    with (
        ScriptedBroker(certificates=certificates) as broker,
        pytest.raises((NotAdmitted, Unreachable), match=r"TLS.*kafka\.security\.protocol"),
    ):
        topics(broker.port)


def test_a_machine_that_falls_silent_does_not_stand_before_the_others() -> None:
    with ScriptedBroker() as healthy, ScriptedBroker(silent_after=2, other_port=healthy.port) as silent:
        settings = ConnectionSettings((("localhost", silent.port),), request_timeout_s=40.0)
        cluster = Cluster(settings, deadline_s=4.0)
        assert list(cluster.topics(None)) == ["secret"]
        assert healthy.served == 0
        # Over the connection at hand, which nobody answers any more; then the other one is asked.
        assert list(cluster.topics(None)) == ["secret"]
        assert healthy.served > 0
        cluster.close()


def test_brokers_that_do_not_answer_are_tried_no_longer_than_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    def connect(*_: object) -> None:
        now[0] += 10
        raise TimeoutError

    monkeypatch.setattr(pool_module, "time", Clock)
    monkeypatch.setattr(pool_module.BrokerConnection, "connect", connect)
    pool = pool_module.ConnectionPool(ConnectionSettings(tuple((f"h{number}", 1) for number in range(9))))
    with pytest.raises(TimeoutError), pool.lend_any(prefers_idle=True, patience_s=15.0):
        pass
    assert now[0] == 20


def test_a_connection_that_fails_behind_its_handshake_is_closed(
    certificates: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped: list[ssl.SSLSocket] = []
    wrap = connection_module.wrap

    def wrap_and_keep(*given: Any) -> ssl.SSLSocket:
        wrapped.append(wrap(*given))
        return wrapped[-1]

    monkeypatch.setattr(connection_module, "wrap", wrap_and_keep)
    with ScriptedBroker(certificates=certificates, mechanisms=("PLAIN",), users=USERS) as broker:
        who = {"sasl_mechanism": "PLAIN", "username": "ann", "password": "chalk"}
        with pytest.raises(NotAdmitted):
            topics(broker.port, security_protocol="SASL_SSL", ca_file=str(certificates[0]), **who)
    assert [one.fileno() for one in wrapped] == [-1]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"security_protocol": "KERBEROS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security_protocol": "SASL_SSL"}, "kafka.sasl.mechanism is not set"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "needs a user name and a password"),
    ],
)
def test_what_is_not_supported_is_told_with_what_is(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        ConnectionSettings((("localhost", 9092),), **settings)


def test_secrets_are_not_shown() -> None:
    who = {"sasl_mechanism": "PLAIN", "username": "ann", "password": "pencil"}
    settings = ConnectionSettings((("localhost", 9092),), security_protocol="SASL_SSL", key_pem="KEY", **who)
    assert "pencil" not in f"{settings!r}{settings}"
    assert "KEY" not in f"{settings!r}{settings}"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_example_of_rfc_7677_is_answered_as_there() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.final(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ScramFailure, match="did not prove"):
        client.verify(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"r=other,s=AAAA,i=4096",
        b"r=mine,s=AAAA,i=4096",
        b"r=mine2,s=!,i=4096",
        b"r=mine2,s=AAAA,i=1",
        b"r=mine2,s=AAAA,i=99999999999",
    ],
)
def test_a_challenge_that_is_none_is_refused(challenge: bytes) -> None:
    with pytest.raises(ScramFailure):
        ScramClient("SCRAM-SHA-256", "user", "pencil", nonce="mine").final(challenge)


def test_failures_cross_processes() -> None:
    at = TopicPartition("orders", 3)
    for failure in (TopicGone(at), OffsetGone(at, 1, 2, 3), NotYetReadable(at, 1, 2, 3, 4.0)):
        again = pickle.loads(pickle.dumps(failure))
        assert (type(again), str(again), vars(again)) == (type(failure), str(failure), vars(failure))


def test_importing_fetching_brings_nothing_heavy() -> None:
    script = (
        "import sys, penstock.spark.fetching\n"
        "heavy = {'numpy', 'pyarrow', 'numba', 'pyspark', 'pandas', 'confluent_kafka'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
