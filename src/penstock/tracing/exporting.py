"""OpenTelemetry's OTLP/HTTP exporter, and our spans in its terms.

Made by tracing.tracer, called on the thread of tracing.sending. The one importer of OpenTelemetry, when an exporter is
made and not before: the packages take 0.2 s and 15 MB, and are in the extra `tracing`.
What OTEL_EXPORTER_OTLP_HEADERS, …_CERTIFICATE and OTEL_RESOURCE_ATTRIBUTES say is obeyed: credentials for a collector
belong there.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock import __version__
from penstock.errors import InvalidConfig
from penstock.tracing.span import Own, Span
from penstock.tracing.trace_context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

EXPORT_TIMEOUT_S = 5.0  # retries included
TRACES_PATH = "/v1/traces"
_EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class OtlpExporter:
    def __init__(self, endpoint: str, service_name: str, instance: str) -> None:
        """Raises InvalidConfig where the packages are missing."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import SpanExportResult
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError as error:
            raise InvalidConfig(
                f"penstock.tracing.endpoint is set, and traces need more packages ({error}): "
                'pip install "penstock[tracing]", or leave the endpoint empty'
            ) from None
        # It has a line for every failed try; tracing.sending has one for all of them.
        logging.getLogger(_EXPORTER_LOGGER).setLevel(logging.CRITICAL)
        self._success = SpanExportResult.SUCCESS
        self._exporter = OTLPSpanExporter(endpoint=traces_url(endpoint), timeout=EXPORT_TIMEOUT_S)
        self._resource = Resource.create(
            {"service.name": service_name, "service.version": __version__, "service.instance.id": instance}
        )
        self._scope = InstrumentationScope("penstock", __version__)

    def export(self, spans: Sequence[Span]) -> bool:
        return self._exporter.export([self._readable(span) for span in spans]) is self._success

    def close(self) -> None:
        self._exporter.shutdown()

    def _readable(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        return ReadableSpan(
            span.name,
            context=_context(span.own),
            parent=None if span.parent is None else _context(span.parent),
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(name, timestamp=at_ns) for name, at_ns in span.events],
            links=[Link(_context(link)) for link in span.links],
            kind=SpanKind[span.kind.value],
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def traces_url(endpoint: str) -> str:
    """Where a collector takes traces: the address as given if it has a path, else the usual one below it."""
    return endpoint if urlsplit(endpoint).path not in ("", "/") else endpoint.rstrip("/") + TRACES_PATH


def _context(of: TraceContext | Own) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    is_sampled = of.is_sampled if isinstance(of, TraceContext) else True
    return SpanContext(
        of.trace_id,
        of.span_id,
        is_remote=isinstance(of, TraceContext),
        trace_flags=TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([of.state]) if of.state else TraceState(),
    )
