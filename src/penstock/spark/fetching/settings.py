"""How a cluster is reached and who we are there: plain values that go from the driver to the executors.

Made by client_settings from the user's options; read by everything in fetching.
"""

from dataclasses import dataclass

from penstock.spark.errors import BadOption

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class ConnectionSettings:
    """Certificates and keys come as PEM: in files, which must be there on every executor, or as text."""

    bootstrap: tuple[tuple[str, int], ...]
    security_protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    ca_pem: str | None = None
    certificate_pem: str | None = None
    key_pem: str | None = None
    check_hostname: bool = True
    verify: bool = True
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    client_id: str = "penstock-spark"
    connect_timeout_s: float = 10
    request_timeout_s: float = 40

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise BadOption("kafka.bootstrap.servers names no broker: give it as host:port, several parted by commas")
        if self.security_protocol not in SECURITY_PROTOCOLS:
            raise BadOption(_none_of("kafka.security.protocol", self.security_protocol, SECURITY_PROTOCOLS))
        if self.uses_sasl:
            if self.sasl_mechanism is None:
                raise BadOption(
                    f"kafka.security.protocol is {self.security_protocol} but kafka.sasl.mechanism is not set: "
                    f"choose one of {', '.join(SASL_MECHANISMS)}"
                )
            if self.sasl_mechanism not in SASL_MECHANISMS:
                raise BadOption(_none_of("kafka.sasl.mechanism", self.sasl_mechanism, SASL_MECHANISMS))
            if self.username is None or self.password is None:
                raise BadOption(
                    f"SASL {self.sasl_mechanism} needs a user name and a password: set kafka.sasl.jaas.config, "
                    f"or kafka.sasl.username and kafka.sasl.password"
                )

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    def __repr__(self) -> str:
        """Without what is secret: Spark logs what it is handed."""
        return f"ConnectionSettings(bootstrap={self.bootstrap!r}, security_protocol={self.security_protocol!r})"


def _none_of(name: str, value: str, known: tuple[str, ...]) -> str:
    return f"{name} is {value}, which is not supported here: choose one of {', '.join(known)}"
