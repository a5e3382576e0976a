"""The OpenAPI document, held against the gateway: what it allows, and much that it does not, is sent to each operation.

Law: no 500, and nothing that the document does not announce.
"""

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 8
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture
def cluster(gateway: Any) -> str:
    cluster = gateway.http.get("/v3/clusters").json()["data"][0]["cluster_id"]
    gateway.http.post(f"/v3/clusters/{cluster}/topics", json={"topic_name": "orders", "partitions_count": 2})
    for number in range(4):
        body = json.dumps({"records": [{"value": number, "partition": number % 2}]})
        gateway.http.post(
            "/topics/orders", content=body, headers={"content-type": "application/vnd.kafka.json.v2+json"}
        )
    config = json.dumps({"name": "one", "format": "json", "auto.offset.reset": "earliest"})
    gateway.http.post("/consumers/sales", content=config, headers={"content-type": "application/json"})
    return cluster


# Names that exist, so that half of what is sent gets past "not found".
def _known(cluster: str) -> dict[str, Any]:
    return {
        "cluster_id": cluster,
        "topic": "orders",
        "topic_name": "orders",
        "partition": 1,
        "partition_id": 1,
        "broker_id": 1,
        "group": "sales",
        "instance": "one",
        "consumer_group_id": "sales",
        "name": "retention.ms",
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_the_gateway_fail(gateway: Any, cluster: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")
    known = _known(cluster)
    tried = 0
    failures: list[str] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        raw = operation.definition.raw
        if raw.get("x-websocket"):
            continue
        # Almost any text can be a name: what is wrong is hard to find where there is nothing but names.
        if mode is GenerationMode.NEGATIVE and "requestBody" not in raw:
            continue
        tried += 1
        try:
            _try(gateway, operation, mode, known)
        except Exception as failure:
            # All of them are tried: one run is to tell everything.
            told = [str(one) for one in getattr(failure, "exceptions", [failure])]
            failures.append(f"{operation.method.upper()} {operation.path}: {'; '.join(told)}")
    assert tried > (60 if mode is GenerationMode.POSITIVE else 15)
    assert not failures, "\n\n".join(failures)


def _try(gateway: Any, operation: Any, mode: GenerationMode, known: dict[str, Any]) -> None:
    calls = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        nonlocal calls
        calls += 1
        parameters = dict(case.path_parameters or {})
        # What is deleted must not be what the others need.
        if calls % 2 and operation.method != "delete":
            parameters |= {name: value for name, value in known.items() if name in parameters}
        elif "cluster_id" in parameters:
            parameters["cluster_id"] = known["cluster_id"]
        case.path_parameters = parameters
        query = dict(case.query or {})
        if operation.path.endswith(":stream"):
            query |= {"limit": 1, "from": "earliest"}
            query.pop("group", None)
        elif operation.path.endswith("/records") and operation.method == "get":
            query |= {"timeout": 10}
        case.query = query
        answer = case.call(base_url=gateway.url, timeout=60)
        if operation.path.endswith((":batch", "/acls")) and answer.status_code == 501:
            return
        case.validate_response(answer, checks=CHECKS)

    run()
