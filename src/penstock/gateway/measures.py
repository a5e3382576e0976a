"""What a gateway measures: every metric's name and meaning, in one place.

Called by gateway.app, which makes it; parts keep the counters they were given. `services.metrics` is its registry:
parts add what only they count.
"""

from penstock.metrics.process import cpu_seconds, open_files, resident_bytes
from penstock.metrics.registry import Registry

LATENCY_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)


class GatewayMeasures:
    def __init__(self) -> None:
        self.registry = registry = Registry()
        self.requests = registry.counters(
            "mq_gateway_requests_total", "HTTP requests answered.", "method", "route", "status"
        )
        self.latency = registry.histograms(
            "mq_gateway_request_latency_ms", "From a request's headers to the end of its answer.", LATENCY_MS, "route"
        )
        self.body_bytes = registry.counter("mq_gateway_body_bytes_total", "Bytes of request bodies read.")
        self.requests_running = registry.gauge("mq_gateway_requests_running", "Requests being served, streams apart.")
        self.streams_open = registry.gauge("mq_gateway_streams_open", "Streams being served.")
        self.produced = registry.counters("mq_gateway_records_produced_total", "Records delivered.", "interface")
        self.produce_failed = registry.counters(
            "mq_gateway_records_failed_total", "Records that were not delivered.", "interface"
        )
        self.consumed = registry.counters("mq_gateway_records_consumed_total", "Records handed out.", "interface")
        self.refused_busy = registry.counter(
            "mq_gateway_busy_total", "Requests told to come back later because too much was under way."
        )
        self.queue_records = registry.gauge("mq_gateway_queue_records", "Records on their way to the cluster.")
        self.queue_bytes = registry.gauge("mq_gateway_queue_bytes", "Bytes of records on their way to the cluster.")
        self.consumers = registry.gauge("mq_gateway_consumers_open", "Kafka consumers the gateway holds.")
        self.connected = registry.gauge("mq_gateway_cluster_connected", "1 when the cluster answered last time.")
        registry.gauge("mq_gateway_cpu_seconds_total", "CPU time of this process.", cpu_seconds)
        registry.gauge("mq_gateway_resident_bytes", "Memory of this process.", resident_bytes)
        registry.gauge("mq_gateway_open_files", "Open files and sockets of this process.", open_files)

    def count(self, method: str, route: str, status: int, took_ms: float, body_bytes: int, is_stream: bool) -> None:
        self.requests.child(method, route, str(status)).value += 1
        self.body_bytes.value += body_bytes
        if not is_stream:
            self.latency.child(route).observe(took_ms)
