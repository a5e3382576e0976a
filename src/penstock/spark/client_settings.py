"""How a cluster is reached, out of `kafka.*` options in Java's or in librdkafka's spelling.

Called by options.py, and through it by the source (ConnectionSettings, our own connection) and by the sink and the
lag (a dictionary for librdkafka). Both come from one Access, so that they cannot differ.
Laws:
- What cannot be honoured is refused with what to do instead; nothing about security is ever ignored.
- No secret is in an error's words or in a repr.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.client_names import JAVA_ONLY, JAVA_TO_LIBRDKAFKA, refused_for_security
from penstock.spark.errors import BadOption

if TYPE_CHECKING:
    from penstock.spark.fetching import ConnectionSettings

DEFAULT_PORT = 9092
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_LOGIN_MODULES = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}
_JAAS_MODULE = re.compile(
    r"^\s*(?:[\w$]+\.)*(?P<module>\w+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE
)
_JAAS_FIELD = re.compile(
    r"""(?P<name>\w+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;"']+))"""
)

_CONVERT = (
    "make a PEM file of it: `keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype "
    "PKCS12`, then `openssl pkcs12 -in store.p12 -nodes -out store.pem`"
)


@dataclass(frozen=True, slots=True)
class Access:
    """The parts of the settings that two clients must understand alike."""

    bootstrap: tuple[tuple[str, int], ...]
    protocol: str
    mechanism: str | None
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    ca_file: str | None
    ca_pem: str | None
    certificate_file: str | None
    certificate_pem: str | None
    key_file: str | None
    key_pem: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    check_hostname: bool
    verify: bool


def connection_settings(kafka_options: Mapping[str, str]) -> "ConnectionSettings":
    """For our own connection. Names come without `kafka.`."""
    from penstock.spark.fetching import ConnectionSettings

    access = _access(kafka_options)
    timeouts: dict[str, float] = {}
    if (request_ms := _milliseconds(kafka_options, "request.timeout.ms")) is not None:
        timeouts["request_timeout_s"] = request_ms / 1000
    if (connect_ms := _milliseconds(kafka_options, "socket.connection.setup.timeout.ms")) is not None:
        timeouts["connect_timeout_s"] = connect_ms / 1000
    return ConnectionSettings(
        bootstrap=access.bootstrap,
        security_protocol=access.protocol,
        ca_file=access.ca_file,
        certificate_file=access.certificate_file,
        key_file=access.key_file,
        key_password=access.key_password,
        ca_pem=access.ca_pem,
        certificate_pem=access.certificate_pem,
        key_pem=access.key_pem,
        check_hostname=access.check_hostname,
        verify=access.verify,
        sasl_mechanism=access.mechanism,
        username=access.username,
        password=access.password,
        client_id=kafka_options.get("client.id") or "penstock-spark",
        **timeouts,
    )


def librdkafka_settings(kafka_options: Mapping[str, str]) -> dict[str, str]:
    """For librdkafka: Java's names translated, the rest handed on as it is."""
    access = _access(kafka_options)
    settings = {
        JAVA_TO_LIBRDKAFKA.get(name, name): value for name, value in kafka_options.items() if name not in JAVA_ONLY
    }
    # Java has a level for each codec, librdkafka one for the codec in use.
    codec = kafka_options.get("compression.type") or kafka_options.get("compression.codec") or ""
    if level := kafka_options.get(f"compression.{codec.strip().lower()}.level"):
        settings["compression.level"] = level
    for alias in ("metadata.broker.list", "sasl.mechanisms"):
        settings.pop(alias, None)
    settings["bootstrap.servers"] = ",".join(_address(host, port) for host, port in access.bootstrap)
    settings["security.protocol"] = access.protocol.lower()
    if access.protocol.endswith("SSL"):
        # librdkafka has one switch for names and another for chains, as we do.
        settings["ssl.endpoint.identification.algorithm"] = "https" if access.check_hostname else "none"
        settings["enable.ssl.certificate.verification"] = "true" if access.verify else "false"
    else:
        settings.pop("ssl.endpoint.identification.algorithm", None)
    known = {
        "sasl.mechanism": access.mechanism,
        "sasl.username": access.username,
        "sasl.password": access.password,
        "ssl.ca.location": access.ca_file,
        "ssl.ca.pem": access.ca_pem,
        "ssl.certificate.location": access.certificate_file,
        "ssl.certificate.pem": access.certificate_pem,
        "ssl.key.location": access.key_file,
        "ssl.key.pem": access.key_pem,
        "ssl.key.password": access.key_password,
    }
    settings.update({name: value for name, value in known.items() if value is not None})
    return settings


def _access(options: Mapping[str, str]) -> Access:
    protocol = options.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise BadOption(f"kafka.security.protocol is {protocol}; there are {', '.join(PROTOCOLS)}")
    if refused := refused_for_security(options, protocol):
        raise BadOption(f"kafka.{refused[0]} is not supported: {refused[1]}")
    mechanism, username, password = _login(options, protocol)
    ca_file, ca_pem = _trust(options)
    certificate_file, certificate_pem, key_file, key_pem = _identity(options)
    # An empty text switches the check off in Java, "none" does in librdkafka.
    check_hostname = options.get("ssl.endpoint.identification.algorithm", "https").strip().lower() not in ("", "none")
    verify = options.get("enable.ssl.certificate.verification", "true").strip().lower() != "false"
    return Access(
        bootstrap=_bootstrap(options.get("bootstrap.servers") or options.get("metadata.broker.list") or ""),
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=password,
        ca_file=ca_file,
        ca_pem=ca_pem,
        certificate_file=certificate_file,
        certificate_pem=certificate_pem,
        key_file=key_file,
        key_pem=key_pem,
        key_password=options.get("ssl.key.password") or None,
        check_hostname=check_hostname and verify,
        verify=verify,
    )


def _bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        # A listener's name may stand before, as in PLAINTEXT://host:9092.
        address = part.rsplit("://", 1)[-1]
        matched = re.fullmatch(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>\d{1,5}))?", address)
        if matched is None or not 0 < int(matched["port"] or DEFAULT_PORT) < 65536:
            raise BadOption(f"kafka.bootstrap.servers has {part}; write host:port, with commas between")
        host = matched["v6"] or matched["host"]
        try:
            # What the socket would do, long after, with an error that names no option.
            host.encode("idna")
        except UnicodeError:
            raise BadOption(f"kafka.bootstrap.servers has {part}, whose host cannot be a name") from None
        found.append((host, int(matched["port"] or DEFAULT_PORT)))
    if not found:
        raise BadOption("kafka.bootstrap.servers is needed: the cluster's host:port, with commas between")
    return tuple(found)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _login(options: Mapping[str, str], protocol: str) -> tuple[str | None, str | None, str | None]:
    if not protocol.startswith("SASL"):
        return None, None, None
    mechanism = (options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "").strip().upper()
    username, password = options.get("sasl.username"), options.get("sasl.password")
    jaas = options.get("sasl.jaas.config")
    if jaas is not None:
        module, fields = _jaas(jaas)
        if mechanism and mechanism not in _LOGIN_MODULES[module]:
            raise BadOption(f"kafka.sasl.jaas.config has {module}, which does not fit kafka.sasl.mechanism {mechanism}")
        if not mechanism and len(_LOGIN_MODULES[module]) == 1:
            mechanism = _LOGIN_MODULES[module][0]
        username, password = fields.get("username", username), fields.get("password", password)
    if mechanism not in MECHANISMS:
        said = f"is {mechanism}" if mechanism else "is missing"
        raise BadOption(f"kafka.sasl.mechanism {said}; there are {', '.join(MECHANISMS)}")
    if not username or password is None:
        raise BadOption(
            "SASL needs a user and a password: kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config"
        )
    return mechanism, username, password


def _jaas(text: str) -> tuple[str, dict[str, str]]:
    """The login module and its fields. Errors quote nothing of the text, for it holds the password."""
    matched = _JAAS_MODULE.match(text)
    if matched is None:
        raise BadOption('kafka.sasl.jaas.config is not of the form `Module required username="…" password="…";`')
    if matched["module"] not in _LOGIN_MODULES:
        raise BadOption(f"kafka.sasl.jaas.config has {matched['module']}; there are {', '.join(_LOGIN_MODULES)}")
    fields: dict[str, str] = {}
    for found in _JAAS_FIELD.finditer(text, matched.end()):
        quoted = found["double"] if found["double"] is not None else found["single"]
        fields[found["name"]] = found["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return matched["module"], fields


def _trust(options: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The authorities' certificates: a file, or the text itself."""
    store = _store(options, "truststore")
    return options.get("ssl.ca.location") or store, options.get("ssl.ca.pem") or options.get(
        "ssl.truststore.certificates"
    )


def _identity(options: Mapping[str, str]) -> tuple[str | None, str | None, str | None, str | None]:
    """Our own certificate and key: (certificate file, text, key file, text)."""
    store = _store(options, "keystore")
    return (
        options.get("ssl.certificate.location") or store,
        options.get("ssl.certificate.pem") or options.get("ssl.keystore.certificate.chain"),
        # A PEM store holds the certificates and the key in one file.
        options.get("ssl.key.location") or store,
        options.get("ssl.key.pem") or options.get("ssl.keystore.key"),
    )


def _store(options: Mapping[str, str], which: str) -> str | None:
    location, kind = options.get(f"ssl.{which}.location"), options.get(f"ssl.{which}.type", "").strip().upper()
    if not location:
        if kind not in ("", "PEM"):
            raise BadOption(f"kafka.ssl.{which}.type is {kind}; only PEM can be read: {_CONVERT}")
        return None
    if kind == "PEM" or (not kind and location.lower().endswith((".pem", ".crt", ".cer"))):
        return location
    said = f"is of type {kind}" if kind else f"is taken for a JKS store, since kafka.ssl.{which}.type does not say PEM"
    raise BadOption(f"kafka.ssl.{which}.location {said}; only PEM can be read: {_CONVERT}")


def _milliseconds(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise BadOption(f"kafka.{name} is {text}; it must be a number of milliseconds above 0")
    return int(text)
