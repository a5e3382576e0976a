"""TLS for a blocking socket, from PEM in files or in text.

Called by fetching.connection.
"""

import os
import socket
import ssl
import tempfile

from penstock.model import Endpoint
from penstock.spark.errors import BadOption
from penstock.spark.fetching.errors import NotAdmitted
from penstock.spark.fetching.settings import ConnectionSettings

# What OpenSSL says when the other side answers in the clear.
_PLAINTEXT_REASONS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})


class HandshakeBroken(ConnectionError):
    """The other side hung up while TLS began: a plaintext port does so, and so does a broker that is going down."""


def wrap(raw: socket.socket, endpoint: Endpoint, settings: ConnectionSettings) -> ssl.SSLSocket:
    try:
        return tls_context(settings).wrap_socket(raw, server_hostname=endpoint.host)
    except ssl.SSLCertVerificationError as failure:
        raise NotAdmitted(
            f"the certificate of {endpoint} was not accepted: {failure.verify_message}; "
            f"set kafka.ssl.truststore.certificates or .location (PEM) to the authority that signed it"
        ) from failure
    except ssl.SSLError as failure:
        if failure.reason in _PLAINTEXT_REASONS:
            raise NotAdmitted(_plaintext(endpoint, settings)) from failure
        check_refusal(endpoint, failure)
        raise HandshakeBroken(_plaintext(endpoint, settings)) from failure
    except (ConnectionError, EOFError) as failure:
        raise HandshakeBroken(_plaintext(endpoint, settings)) from failure


def check_refusal(endpoint: Endpoint, failure: Exception) -> None:
    """Raise if the other side said no. Under TLS 1.3 it looks at our certificate after the handshake only."""
    if isinstance(failure, ssl.SSLError) and "ALERT" in (failure.reason or ""):
        raise NotAdmitted(
            f"{endpoint} refused TLS: {failure.reason}; if it wants a client certificate, "
            f"set kafka.ssl.keystore.certificate.chain and .key, or .location (PEM)"
        ) from failure


def tls_context(settings: ConnectionSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if settings.ca_file is not None or settings.ca_pem is not None:
            # Whoever names an authority trusts that one, not also all those of the system.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_verify_locations(cafile=settings.ca_file, cadata=settings.ca_pem)
        context.check_hostname = settings.check_hostname and settings.verify
        context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE
        _load_own_certificate(context, settings)
    except (ssl.SSLError, OSError, ValueError) as failure:
        raise BadOption(f"the certificates or keys of the kafka.ssl.* options cannot be used: {failure}") from failure
    return context


def _load_own_certificate(context: ssl.SSLContext, settings: ConnectionSettings) -> None:
    password = settings.key_password
    # A password must be given even where there is none: OpenSSL would else ask for it on the terminal.
    secret = password if password is not None else ""
    if settings.certificate_file is not None:
        context.load_cert_chain(settings.certificate_file, settings.key_file, secret)
    elif settings.certificate_pem is not None:
        # OpenSSL reads a chain and its key from a file only; this one is ours alone and gone at once.
        descriptor, path = tempfile.mkstemp(suffix=".pem")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{settings.key_pem or ''}\n{settings.certificate_pem}\n")
            context.load_cert_chain(path, None, secret)
        finally:
            os.unlink(path)


def _plaintext(endpoint: Endpoint, settings: ConnectionSettings) -> str:
    return (
        f"{endpoint} does not speak TLS, but kafka.security.protocol is {settings.security_protocol}: "
        f"it may be a plaintext listener"
    )
