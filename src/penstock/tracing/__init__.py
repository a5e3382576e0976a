"""OpenTelemetry traces: spans of produce, append, replicate and fetch, sampled, sent by OTLP/HTTP on their own thread.

Imported by broker only where `penstock.tracing.endpoint` is set; OpenTelemetry's packages are imported by
tracing.exporting alone.
Laws:
- Whatever the collector does, requests go on as if there were none: what cannot be sent in time is dropped and counted.
- A span says who, where and how many; never a key, a value or a header of a record but its trace context.

    tracer          decides which requests are traced, and makes their spans
    produce_trace   one traced produce request
    looking, first_record, trace_context    the producer's trace context, found in its records
    span            a span that ended
    sending         the queue and the thread
    exporting       OpenTelemetry's exporter
"""

from penstock.tracing.tracer import Tracer, open_tracer

__all__ = ["Tracer", "open_tracer"]
