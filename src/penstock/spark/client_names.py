"""Names of Kafka client settings: which there are, which are refused, how Java's are called in librdkafka.

Called by client_settings.py and options.py. Names that are neither Java's nor librdkafka's are passed on unless they
look like a slip of the pen: a misspelt `security.protocol` must not end in a connection without encryption.
"""

import difflib
from collections.abc import Mapping

# Java's spelling -> librdkafka's, where the meaning is the same.
JAVA_TO_LIBRDKAFKA = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
}

# Java's alone: they steer Java's client or are translated elsewhere; librdkafka would refuse the name.
JAVA_ONLY = frozenset(
    {
        "auto.include.jmx.reporter",
        "buffer.memory",
        "client.dns.lookup.mode",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "key.serializer",
        "value.serializer",
        "max.block.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.class",
        "sasl.client.callback.handler.class",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

# Known to both, or librdkafka's own and often used.
SHARED = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "batch.num.messages",
        "batch.size",
        "bootstrap.servers",
        "broker.address.family",
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.level",
        "compression.type",
        "connections.max.idle.ms",
        "debug",
        "delivery.timeout.ms",
        "enable.idempotence",
        "enable.ssl.certificate.verification",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "isolation.level",
        "linger.ms",
        "log_level",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "message.copy.max.bytes",
        "message.max.bytes",
        "message.timeout.ms",
        "metadata.broker.list",
        "metadata.max.age.ms",
        "partition.assignment.strategy",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "reconnect.backoff.jitter.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "session.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.timeout.ms",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "statistics.interval.ms",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)

KNOWN = JAVA_ONLY | SHARED | JAVA_TO_LIBRDKAFKA.keys() | set(JAVA_TO_LIBRDKAFKA.values())

# Spark's connector refuses these of a source, and so do we; the words say what to use instead.
REFUSED_OF_READERS = {
    "auto.offset.reset": "set startingOffsets to earliest or latest; a restarted query goes on from its checkpoint",
    "key.deserializer": "keys come as bytes: use key.format, or cast the column",
    "value.deserializer": "values come as bytes: use value.format, or cast the column",
    "enable.auto.commit": "offsets live in the query's checkpoint; commit.group.id names the group that shows progress",
    "interceptor.classes": "there is no Java client here to load them into",
}
REFUSED_OF_WRITERS = {
    "key.serializer": "keys are written as bytes or strings",
    "value.serializer": "values are written as bytes or strings",
    "interceptor.classes": "there is no Java client here to load them into",
}

_NO_JAVA = "there is no Java here to load it into"
# What would narrow whom to trust or what to speak, and cannot be had of both of our clients: refused where it counts.
_REFUSED_WITH_TLS = {
    "ssl.cipher.suites": "the ciphers are OpenSSL's own; set them in its configuration (openssl.cnf)",
    "ssl.crl.location": "revoked certificates are not looked for; let the authority's certificates be short-lived",
    "ssl.engine.factory.class": _NO_JAVA,
    "ssl.protocol": "TLS 1.2 or 1.3 is spoken, whichever the broker prefers; leave it out",
    "ssl.provider": _NO_JAVA,
    "security.providers": _NO_JAVA,
}
_REFUSED_WITH_SASL = {
    "sasl.client.callback.handler.class": _NO_JAVA,
    "sasl.login.callback.handler.class": _NO_JAVA,
    "sasl.login.class": _NO_JAVA,
    "security.providers": _NO_JAVA,
}


def refused_for_security(options: Mapping[str, str], protocol: str) -> tuple[str, str] | None:
    """A setting about security that would have to be ignored, and what to do instead."""
    refused: dict[str, str] = {}
    if protocol.startswith("SASL"):
        refused |= _REFUSED_WITH_SASL
    if protocol.endswith("SSL"):
        refused |= _REFUSED_WITH_TLS
        spoken = {one.strip() for one in options.get("ssl.enabled.protocols", "TLSv1.2").split(",")}
        # Older ones are never spoken, which nobody minds; that TLS 1.2 is spoken, somebody may.
        if "TLSv1.2" not in spoken:
            refused["ssl.enabled.protocols"] = "TLS 1.2 or 1.3 is spoken, whichever the broker prefers; name TLSv1.2"
    return next(((name, why) for name, why in refused.items() if options.get(name, "").strip()), None)


def misspelt(name: str) -> str | None:
    """The setting that an unknown name was probably meant to be."""
    if name in KNOWN:
        return None
    near = difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.85)
    return near[0] if near else None
