"""Writes docs/metrics.md from the registry of metrics; with --check, exits 1 when the file is stale."""

import sys

from generated_page import DOCS, write_or_check
from penstock.clock import SystemClock
from penstock.metrics import BrokerMetrics
from penstock.telemetry import instances, values

TARGET = DOCS / "metrics.md"

HEAD = """\
# Metrics

Written by `scripts/metrics_table.py` from `src/penstock/metrics/broker_metrics.py`; change that, not this.

A broker shows them at `/metrics` of `penstock.http.listen`, in Prometheus' text format. Counters begin anew with the
process. Histograms give any percentile:

    histogram_quantile(0.99, sum by (le) (rate(mq_produce_latency_ms_bucket[5m])))

A metric that nobody has counted yet (errors, refused connections) is not on the page. Names that clients invent are
bounded: past a family's limit they are counted as `_other`, past 5,000 rows a gauge's are left off and
`mq_metric_rows_dropped_total` says so. `deploy/` has the scrape configuration, alert rules and dashboards made of them.

| Metric | Type | Labels | Meaning |
|---|---|---|---|
"""

TAIL = """
## What clients push (KIP-714)

Clients that know how (librdkafka 2.5, Java 3.7 and newer) ask a broker which of their own metrics are wanted, and push
them. They are wanted once a resource of type `client-metrics` says so:

    penstock configs set client-metrics:billing 'metrics=*' interval.ms=60000 'match=client_id=billing-.*'

or `kafka-configs.sh --alter --entity-type client-metrics`. Clients hear of it when they connect; who was there before
the first such resource, with its next connection.

`metrics` are beginnings of names, `*` for all; `match` patterns are RE2's, for the whole value. The last values are on
`/metrics` of the broker a client pushes to: `org.apache.kafka.producer.record.queue.time.avg` becomes
`mq_client_producer_record_queue_time_avg`, with the labels `client_id`, `client_instance_id`, those of the metric, and
`group_id`, `transactional_id` and `client_rack` where the client has them. A counter's name ends in `_total`.

Kept are {names:,} names and {series:,} values of {instances:,} clients, {each:,} of each; the rest is counted in
`mq_telemetry_points_left_out_total`. A client that is silent for three of its intervals, and a minute at least, is
forgotten.
"""


def page() -> str:
    rows = (
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |\n"
        for name, kind, labels, text in sorted(BrokerMetrics(SystemClock()).registry.described())
    )
    tail = TAIL.format(
        names=values.NAMES_MAX,
        series=values.SERIES_MAX,
        each=values.SERIES_PER_CLIENT_MAX,
        instances=instances.INSTANCES_MAX,
    )
    return HEAD + "".join(rows) + tail


def main(arguments: list[str]) -> int:
    if arguments == ["--print"]:
        print(page(), end="")
        return 0
    return write_or_check(TARGET, page())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
