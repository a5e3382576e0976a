"""The document says what the routes do: every row is in it once, whole and unambiguous."""

import inspect
import re
from typing import Any

import pytest
from starlette.routing import Route, WebSocketRoute

from penstock.clock import SystemClock
from penstock.gateway.app import Services
from penstock.gateway.kafka import Kafka
from penstock.gateway.measures import GatewayMeasures
from penstock.gateway.rest import routes, rows
from penstock.gateway.rest.openapi import document
from penstock.gateway.settings import GatewaySettings


@pytest.fixture
def services() -> Services:
    return Services(Kafka("127.0.0.1:1", {}), GatewaySettings("127.0.0.1:1"), GatewayMeasures(), SystemClock())


def test_every_row_is_served_and_documented(services: Services) -> None:
    made = rows(services)
    told = document(made, "1.0")
    served = [route for route in routes(services) if isinstance(route, Route | WebSocketRoute)]
    paths = {route.path for route in served} - {"/openapi.json"}
    assert paths == set(told["paths"])
    operations = [one for methods in told["paths"].values() for one in methods.values()]
    assert len(operations) == len(made)
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    assert inspect.iscoroutinefunction(made[0].handler)


def test_parameters_of_a_path_are_those_in_it(services: Services) -> None:
    for path, methods in document(rows(services), "1.0")["paths"].items():
        for operation in methods.values():
            named = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert sorted(named) == sorted(re.findall(r"{(\w+)}", path)), path
            assert all(one["required"] for one in operation["parameters"] if one["in"] == "path")


def test_every_answer_and_body_has_a_schema_that_is_one(services: Services) -> None:
    import jsonschema

    checker = jsonschema.Draft202012Validator

    def check(content: dict[str, Any]) -> None:
        for media in content.values():
            if "$ref" not in media["schema"]:
                checker.check_schema(media["schema"])

    for methods in document(rows(services), "1.0")["paths"].values():
        for operation in methods.values():
            assert any(status.startswith(("1", "2", "501")) for status in operation["responses"])
            for answer in operation["responses"].values():
                check(answer.get("content", {}))
            check(operation.get("requestBody", {}).get("content", {}))
            for parameter in operation["parameters"]:
                checker.check_schema(parameter["schema"])
