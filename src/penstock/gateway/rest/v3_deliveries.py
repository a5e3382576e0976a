"""REST v3: records on their way to the cluster, and the report of what became of each.

Called by v3_records and rest.socket, each of which has its own count of what was delivered and what was not.
Laws:
- Reports come in the order of the records, each with an error_code of its own (200: delivered).
- Records that could not be made are not sent and have their report all the same.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem
from penstock.gateway.kafka import Busy, KafkaFailed, Outcome
from penstock.gateway.rest.envelope import cluster_id
from penstock.gateway.rest.shapes import INTEGER, STRING, list_of, nullable, structure
from penstock.gateway.rest.timestamps import told_time
from penstock.gateway.rest.v3_record_maker import Made, Ready

DELIVERED = 200
BUSY_PAUSE_S = 0.05

_SIDE = structure(("size",), type=STRING, size=INTEGER, subject=nullable(STRING), schema_id=nullable(INTEGER))
REPORT = structure(
    ("error_code",),
    error_code=INTEGER,
    message=STRING,
    cluster_id=STRING,
    topic_name=STRING,
    partition_id=INTEGER,
    offset=INTEGER,
    timestamp=STRING,
    key=_SIDE,
    value=_SIDE,
)
BATCH_REPORT = structure(
    ("successes", "failures"),
    successes=list_of(structure(("id",), id=STRING)),
    failures=list_of(structure(("id", "error_code", "message"), id=STRING, error_code=INTEGER, message=STRING)),
)

Report = dict[str, Any]
Sent = tuple[Sequence[Made], "asyncio.Future[list[Outcome]]"]


class Deliveries:
    def __init__(self, services: Services, who: str) -> None:
        """`who` they come through, for the metrics."""
        self._services = services
        self._delivered = services.measures.produced.child(who)
        self._failed = services.measures.produce_failed.child(who)

    def send(self, made: Sequence[Made], topic: str) -> Sent:
        """All at once. Raises Busy before any is sent."""
        records = [one.record for one in made if isinstance(one, Ready)]
        return made, self._services.kafka.produce_many(topic, records)

    async def send_patiently(self, made: Sequence[Made], topic: str) -> Sent:
        """Whoever waits here reads nothing more from the caller meanwhile: that is how a slow cluster is felt."""
        while True:
            try:
                return self.send(made, topic)
            except Busy:
                await asyncio.sleep(BUSY_PAUSE_S)

    async def reports(self, sent: Sent, topic: str) -> list[Report]:
        made, future = sent
        outcomes = iter(await future)
        cluster = cluster_id(self._services)
        told = [_report(one, next(outcomes) if isinstance(one, Ready) else one, topic, cluster) for one in made]
        failures = sum([one["error_code"] != DELIVERED for one in told])
        self._failed.value += failures
        self._delivered.value += len(told) - failures
        return told


def _report(made: Made, outcome: Outcome | HttpProblem, topic: str, cluster: str) -> Report:
    problem = outcome.problem() if isinstance(outcome, KafkaFailed) else outcome
    if isinstance(problem, HttpProblem):
        return {"error_code": problem.code, "message": problem.message}
    assert isinstance(made, Ready)
    told: Report = {
        "error_code": DELIVERED,
        "cluster_id": cluster,
        "topic_name": topic,
        "partition_id": problem.partition,
        "offset": problem.offset,
        "timestamp": told_time(problem.timestamp_ms),
    }
    if made.key is not None:
        told["key"] = made.key
    if made.value is not None:
        told["value"] = made.value
    return told
