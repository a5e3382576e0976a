"""Access to a cluster in Java's and in librdkafka's spelling: the same for both of our clients."""

import re

import confluent_kafka
import pytest

from penstock.spark.client_settings import connection_settings, librdkafka_settings
from penstock.spark.errors import BadOption

BASE = {"bootstrap.servers": "a:9092"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="us er" password="p\\"w;=\'d";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='u' password=secret;"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 , b ", (("a", 1), ("b", 9092))),
        ("[::1]:5,PLAINTEXT://c:6", (("::1", 5), ("c", 6))),
    ],
)
def test_brokers_are_found_in_every_way_to_write_them(text: str, found: tuple[tuple[str, int], ...]):
    assert connection_settings({"bootstrap.servers": text}).bootstrap == found


@pytest.mark.parametrize("text", ["a:x", "a:0", "a:70000", "::1", "a:1:2", "http://"])
def test_brokers_that_are_none_are_refused(text: str):
    with pytest.raises(BadOption, match="write host:port"):
        connection_settings({"bootstrap.servers": text})


@pytest.mark.parametrize("text", ["a..b:1", "x" * 70 + ".org"])
def test_a_host_that_cannot_be_a_name_is_refused(text: str):
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers has .*whose host cannot be a name"):
        connection_settings({"bootstrap.servers": text})


def test_a_jaas_text_gives_user_and_password_to_both_clients():
    options = BASE | {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    ours, theirs = connection_settings(options), librdkafka_settings(options)
    assert (ours.security_protocol, ours.sasl_mechanism) == ("SASL_PLAINTEXT", "PLAIN")
    assert (ours.username, ours.password) == ("us er", "p\"w;='d")
    assert (theirs["sasl.username"], theirs["sasl.password"]) == ("us er", "p\"w;='d")
    assert "sasl.jaas.config" not in theirs
    scram = BASE | {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM}
    assert (connection_settings(scram).username, connection_settings(scram).password) == ("u", "secret")


def test_librdkafkas_spelling_means_the_same():
    options = BASE | {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/c.pem",
        "ssl.key.location": "/k.pem",
    }
    ours, theirs = connection_settings(options), librdkafka_settings(options)
    assert (ours.sasl_mechanism, ours.ca_file, ours.certificate_file, ours.key_file) == (
        "SCRAM-SHA-256",
        "/ca.pem",
        "/c.pem",
        "/k.pem",
    )
    assert theirs["sasl.mechanism"] == "SCRAM-SHA-256"
    assert "sasl.mechanisms" not in theirs


def test_pem_stores_in_files_and_as_text():
    options = BASE | {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/trust",
        "ssl.keystore.type": "pem",
        "ssl.keystore.location": "/mine",
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "",
    }
    ours, theirs = connection_settings(options), librdkafka_settings(options)
    assert (ours.ca_file, ours.certificate_file, ours.key_file, ours.key_password) == ("/trust", "/mine", "/mine", "p")
    assert (ours.check_hostname, ours.verify) == (False, True)
    assert theirs["ssl.endpoint.identification.algorithm"] == "none"
    assert theirs["ssl.key.location"] == "/mine"
    text = BASE | {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
    }
    ours = connection_settings(text)
    assert (ours.ca_pem, ours.certificate_pem, ours.key_pem) == ("CA", "CERT", "KEY")
    assert librdkafka_settings(text)["ssl.ca.pem"] == "CA"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "taken for a JKS store"),
        ({"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12"}, "is of type PKCS12; only PEM"),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type is JKS; only PEM"),
        ({"security.protocol": "TLS"}, "there are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is missing; there are PLAIN, SCRAM"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism is GSSAPI; there are"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "SASL needs a user and a password"),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": "secret"}, "is not of the form"),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": "x.OAuth required a=secret;"}, "has OAuth; there are"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
            "does not fit kafka.sasl.mechanism PLAIN",
        ),
        ({"request.timeout.ms": "soon"}, "kafka.request.timeout.ms is soon"),
    ],
)
def test_what_cannot_be_honoured_is_refused_without_a_secret_in_the_words(more: dict[str, str], said: str):
    with pytest.raises(BadOption) as told:
        connection_settings(BASE | more)
    assert said in str(told.value)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.enabled.protocols", "TLSv1.3"),
        ("ssl.enabled.protocols", "TLSv1.1,TLSv1"),
        ("ssl.cipher.suites", "TLS_AES_256_GCM_SHA384"),
        ("ssl.protocol", "TLSv1.3"),
        ("ssl.provider", "BCJSSE"),
        ("ssl.engine.factory.class", "org.example.Engine"),
        ("ssl.crl.location", "/revoked.pem"),
        ("security.providers", "org.example.Provider"),
        ("sasl.client.callback.handler.class", "org.example.Handler"),
        ("sasl.login.callback.handler.class", "org.example.Handler"),
        ("sasl.login.class", "org.example.Login"),
    ],
)
def test_no_setting_that_narrows_what_is_trusted_is_ignored(name: str, value: str):
    secured = BASE | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    for make in (connection_settings, librdkafka_settings):
        make(secured)
        with pytest.raises(BadOption, match=rf"^kafka\.{re.escape(name)} is not supported: "):
            make(secured | {name: value})


def test_what_is_spoken_anyway_may_be_asked_for():
    connection_settings(BASE | {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.2, TLSv1.3"})
    connection_settings(BASE | {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.2"})


def test_a_store_that_is_no_pem_is_told_how_to_become_one():
    with pytest.raises(BadOption, match=r"keytool -importkeystore .*openssl pkcs12"):
        connection_settings(BASE | {"ssl.truststore.location": "/t.jks"})


def test_librdkafka_takes_what_was_written_for_java():
    java = BASE | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": PLAIN,
        "max.poll.records": "500",
        "fetch.max.wait.ms": "100",
        "max.request.size": "2000000",
        "send.buffer.bytes": "65536",
        "ssl.enabled.protocols": "TLSv1.3",
        "linger.ms": "5",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "compression.gzip.level": "2",
    }
    assert librdkafka_settings(java)["compression.level"] == "7"
    confluent_kafka.Producer(librdkafka_settings(java))
