"""The registry over HTTP: every path, every number it refuses with, names with slashes, limits."""

from typing import Any
from urllib.parse import quote

import orjson
import pytest

from penstock.gateway.registry.asking import BODY_BYTES_MAX
from penstock.gateway.registry.contracts import CONTRACT_BYTES_MAX
from penstock.gateway.registry.subjects import SUBJECT_CHARACTERS_MAX
from penstock.schemas.schema import SCHEMA_BYTES_MAX

MEDIA = "application/vnd.schemaregistry.v1+json"
GENERIC = "application/octet-stream"
INT = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'
WIDER = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"z","type":"int"}]}'
INNER = '{"type":"record","name":"Inner","fields":[]}'
OUTER = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"Inner"}]}'


class Caller:
    def __init__(self, gateway: Any) -> None:
        self._http = gateway.http

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        sent = {"content-type": MEDIA, **{name.replace("_", "-"): value for name, value in headers.items()}}
        content = None if body is None else orjson.dumps(body)
        answer = self._http.request(method, path, content=content, headers=sent)
        assert answer.headers["content-type"] == MEDIA, answer.text
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, int]:
        """The status and the number."""
        sent = {"content-type": MEDIA, **{name.replace("_", "-"): value for name, value in headers.items()}}
        content = body if isinstance(body, bytes) else None if body is None else orjson.dumps(body)
        answer = self._http.request(method, path, content=content, headers=sent)
        told = answer.json()
        assert set(told) == {"error_code", "message"}
        assert told["message"].endswith((".", ":", ")")) or len(told["message"]) > 10
        return answer.status_code, told["error_code"]

    def register(self, subject: str, text: str, **more: object) -> int:
        return self("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": text, **more})["id"]


@pytest.fixture
def call(gateway: Any) -> Caller:
    return Caller(gateway)


def test_a_subject_from_its_first_version_to_its_end(call: Caller) -> None:
    assert call("GET", "/subjects") == []
    assert call("POST", "/subjects/orders-value/versions", {"schema": INT}) == {"id": 1}
    assert call.register("orders-value", WIDER) == 2
    assert call("GET", "/subjects") == ["orders-value"]
    assert call("GET", "/subjects/orders-value/versions") == [1, 2]
    latest = call("GET", "/subjects/orders-value/versions/latest")
    assert (latest["subject"], latest["version"], latest["id"], latest["schema"]) == ("orders-value", 2, 2, WIDER)
    assert call("GET", "/subjects/orders-value/versions/-1") == latest
    assert "schemaType" not in latest
    assert call("GET", "/subjects/orders-value/versions/1/schema") == orjson.loads(INT)
    assert call("GET", "/schemas/ids/1")["schema"] == INT
    assert call("GET", "/schemas/ids/1?fetchMaxId=true")["maxId"] == 2
    assert call("GET", "/schemas/ids/1/schema") == orjson.loads(INT)
    assert call("GET", "/schemas/ids/1/subjects") == ["orders-value"]
    assert call("GET", "/schemas/ids/1/versions") == [{"subject": "orders-value", "version": 1}]
    guid = call("GET", "/schemas/ids/1")["guid"]
    assert call("GET", f"/schemas/guids/{guid}")["schema"] == INT
    assert call("GET", f"/schemas/guids/{guid}/ids") == [{"context": ".", "id": 1}]
    assert sorted(call("GET", "/schemas/types")) == ["AVRO", "JSON", "PROTOBUF"]
    found = call("POST", "/subjects/orders-value", {"schema": INT})
    assert (found["id"], found["version"]) == (1, 1)
    assert [one["version"] for one in call("GET", "/schemas")] == [1, 2]
    assert [one["version"] for one in call("GET", "/schemas?latestOnly=true&subjectPrefix=orders")] == [2]
    full = call("POST", "/subjects/orders-value/versions", {"schema": INT}, confluent_accept_unknown_properties="true")
    assert (full["id"], full["version"], full["guid"]) == (1, 1, guid)

    assert call("DELETE", "/subjects/orders-value/versions/latest") == 2
    assert call("GET", "/subjects/orders-value/versions?deleted=true") == [1, 2]
    assert call("GET", "/subjects/orders-value/versions?deletedOnly=true") == [2]
    assert call("GET", "/subjects/orders-value/versions/2?deleted=true")["deleted"] is True
    assert call("GET", "/schemas/ids/2")["schema"] == WIDER, "what was written with it must stay readable"
    assert call("DELETE", "/subjects/orders-value") == [1]
    assert call("GET", "/subjects?deletedOnly=true") == ["orders-value"]
    assert call("DELETE", "/subjects/orders-value?permanent=true") == [1, 2]
    assert call("GET", "/subjects?deleted=true") == []
    assert call.refused("GET", "/schemas/ids/2") == (404, 40403)


def test_every_refusal_has_its_number(call: Caller) -> None:
    call.register("a", INT)
    call.register("inner", INNER)
    call.register("outer", OUTER, references=[{"name": "Inner", "subject": "inner", "version": 1}])
    schema = {"schema": INT}
    table: list[tuple[str, str, object, tuple[int, int]]] = [
        ("GET", "/subjects/nobody/versions", None, (404, 40401)),
        ("GET", "/subjects/nobody/versions/latest", None, (404, 40401)),
        ("POST", "/subjects/nobody", schema, (404, 40401)),
        ("DELETE", "/subjects/nobody", None, (404, 40401)),
        ("DELETE", "/config/nobody", None, (404, 40401)),
        ("DELETE", "/mode/nobody", None, (404, 40401)),
        ("GET", "/subjects/a/versions/9", None, (404, 40402)),
        ("DELETE", "/subjects/a/versions/9", None, (404, 40402)),
        ("POST", "/compatibility/subjects/a/versions/9", schema, (404, 40402)),
        ("GET", "/schemas/ids/99", None, (404, 40403)),
        ("GET", "/schemas/ids/99/subjects", None, (404, 40403)),
        ("GET", "/schemas/ids/99/versions", None, (404, 40403)),
        ("GET", "/schemas/ids/many", None, (404, 40403)),
        ("GET", "/schemas/ids/99999999999999999999", None, (404, 40403)),
        ("GET", "/schemas/guids/0000", None, (404, 40403)),
        ("GET", "/schemas/guids/%ff", None, (404, 40403)),
        ("POST", "/subjects/a", {"schema": OTHER}, (404, 40403)),
        ("DELETE", "/subjects/a?permanent=true", None, (404, 40405)),
        ("DELETE", "/subjects/a/versions/1?permanent=true", None, (404, 40407)),
        ("GET", "/config/a", None, (404, 40408)),
        ("GET", "/mode/a", None, (404, 40409)),
        ("POST", "/subjects/a/versions", {"schema": OTHER}, (409, 409)),
        ("POST", "/subjects/a/versions", {"schema": "{"}, (422, 42201)),
        ("POST", "/subjects/new/versions", {}, (422, 42201)),
        ("POST", "/subjects/a/versions", {"schema": INT, "schemaType": "XML"}, (422, 42201)),
        ("GET", "/subjects/a/versions/0", None, (422, 42202)),
        ("GET", "/subjects/a/versions/newest", None, (422, 42202)),
        ("GET", "/subjects/a/versions/2147483648", None, (422, 42202)),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, (422, 42203)),
        ("PUT", "/config/a", {}, (422, 42203)),
        ("PUT", "/mode", {"mode": "SIDEWAYS"}, (422, 42204)),
        ("PUT", "/mode", {}, (422, 42204)),
        ("PUT", "/mode", {"mode": "IMPORT"}, (422, 42205)),
        ("POST", "/subjects/a/versions", {"schema": WIDER, "id": 77}, (422, 42205)),
        ("DELETE", "/subjects/inner", None, (422, 42206)),
        ("DELETE", "/subjects/inner/versions/1", None, (422, 42206)),
        ("POST", "/subjects/a%00b/versions", schema, (422, 42208)),
        ("POST", f"/subjects/{'s' * (SUBJECT_CHARACTERS_MAX + 1)}/versions", schema, (422, 42208)),
        ("POST", "/subjects/a/versions", {"schema": "x" * (SCHEMA_BYTES_MAX + 1)}, (422, 42209)),
        ("POST", "/subjects/a/versions", {"schema": INT, "ruleSet": {"domainRules": [{}]}}, (422, 42210)),
        ("POST", "/subjects/a/versions", {"schema": INT, "ruleSet": "x" * CONTRACT_BYTES_MAX}, (422, 42210)),
        ("POST", "/subjects/a/versions", {"schema": INT, "metadata": {"properties": {"k": 1}}}, (400, 400)),
        ("POST", "/subjects/a/versions", {"schema": INT, "references": [{"name": "x"}]}, (400, 400)),
        ("POST", "/subjects/a/versions", {"schema": INT, "references": [{}] * 201}, (400, 400)),
        ("POST", "/subjects/a/versions", {"schema": {}}, (400, 400)),
        ("POST", "/subjects/a/versions", {"schema": INT, "id": "seven"}, (400, 400)),
        ("POST", "/subjects/a/versions", {"schema": INT, "version": 2**40}, (400, 400)),
        ("POST", "/subjects/a/versions", [], (400, 400)),
        ("POST", "/subjects/a/versions", b"{", (400, 400)),
        ("PUT", "/config", {"normalize": "yes"}, (400, 400)),
        ("PUT", "/config", {"alias": 7}, (400, 400)),
        ("GET", "/subjects?offset=x", None, (400, 400)),
        ("POST", "/subjects/a/versions", b" " * (BODY_BYTES_MAX + 1), (413, 413)),
        ("PATCH", "/subjects/a/versions", schema, (405, 405)),
        ("GET", "/subjects/a/nothing/here", None, (404, 404)),
    ]
    for method, path, body, expected in table:
        assert call.refused(method, path, body) == expected, (method, path[:60])

    assert call("DELETE", "/subjects/outer/versions/1") == 1
    assert call.refused("DELETE", "/subjects/outer/versions/1") == (404, 40406)
    assert call.refused("DELETE", "/subjects/outer") == (404, 40404)
    assert call.refused("POST", "/subjects/a/versions", schema, content_type="text/html") == (415, 415)
    assert call.refused("GET", "/subjects", accept="text/html") == (406, 406)
    for kind in (MEDIA, "application/vnd.schemaregistry+json", "application/json; charset=utf-8", GENERIC):
        assert call("POST", "/subjects/a", schema, content_type=kind, accept=kind.partition(";")[0])["id"] == 1


def test_names_may_hold_anything_that_can_be_written(call: Caller) -> None:
    names = ["a/b", "/", "ü–√", "with space", "%2F", "a?b=c#d", "a:b", ":x:y", "latest", "versions", "{}\"'\\"]
    for place, name in enumerate(names):
        text = f'{{"type":"fixed","name":"F","size":{place + 1}}}'
        assert call.register(name, text) == place + 1, name
        path = f"/subjects/{quote(name, safe='')}"
        assert call("GET", f"{path}/versions/latest")["subject"] == name
        assert call("POST", path, {"schema": text})["version"] == 1
        assert call("PUT", f"/config/{quote(name, safe='')}", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
        assert call("GET", f"/config/{quote(name, safe='')}") == {"compatibilityLevel": "NONE"}
        assert call("DELETE", f"{path}/versions/1") == 1
    assert call("GET", "/subjects?deleted=true") == sorted(names)


def test_contexts_by_name_and_by_path(call: Caller) -> None:
    call.register("a", INT)
    assert call.register(":.sales:a", OTHER) == 1, "a context counts its own ids"
    assert call("POST", "/contexts/.sales/subjects/b/versions", {"schema": INT}) == {"id": 2}
    assert call("POST", "/contexts/:.sales:/subjects/c/versions", {"schema": INT}) == {"id": 2}

    assert call("GET", "/contexts") == [".", ".sales"]
    assert call("GET", "/subjects") == [":.sales:a", ":.sales:b", ":.sales:c", "a"]
    assert call("GET", "/subjects?subjectPrefix=:.sales:") == [":.sales:a", ":.sales:b", ":.sales:c"]
    assert call("GET", "/subjects?subjectPrefix=") == ["a"]
    assert call("GET", "/subjects?subjectPrefix=:*:a") == [":.sales:a", "a"]
    assert call("GET", "/contexts/.sales/subjects") == [":.sales:a", ":.sales:b", ":.sales:c"]
    assert call("GET", "/contexts/.sales/subjects?subjectPrefix=b") == [":.sales:b"]
    assert call("GET", "/contexts/.sales/subjects/a/versions/1")["schema"] == OTHER
    assert call("GET", "/subjects/:.:a/versions/1")["subject"] == "a"
    assert call("GET", "/subjects/b/versions/1")["subject"] == ":.sales:b", (
        "found by its bare name where only one has it"
    )
    assert call("GET", "/schemas/ids/1")["schema"] == INT
    assert call("GET", "/schemas/ids/1?subject=:.sales:")["schema"] == OTHER
    assert call("GET", "/contexts/.sales/schemas/ids/1")["schema"] == OTHER
    assert call("GET", "/schemas/ids/2?subject=b")["schema"] == INT
    assert call.refused("GET", "/schemas/ids/2") == (404, 40403)
    assert call("GET", "/contexts/.sales/schemas/ids/2/subjects") == [":.sales:b", ":.sales:c"]
    assert [one["subject"] for one in call("GET", "/contexts/.sales/schemas?limit=1&offset=1")] == [":.sales:b"]

    call("PUT", "/contexts/.sales/config", {"compatibility": "NONE"})
    assert call("GET", "/config/:.sales:") == {"compatibilityLevel": "NONE"}
    assert call("GET", "/contexts/.sales/config/a?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}
    assert call("GET", "/config/a?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    call("PUT", "/contexts/.sales/mode", {"mode": "READONLY"})
    assert call.refused("POST", "/contexts/.sales/subjects/b/versions", {"schema": OTHER}) == (422, 42205)
    assert call("GET", "/mode/:.sales:a?defaultToGlobal=true") == {"mode": "READONLY"}
    assert call("GET", "/mode/a?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert call("DELETE", "/contexts/.sales/mode") == {"mode": "READONLY"}


def test_settings_and_modes(call: Caller) -> None:
    assert call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert call("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert call("GET", "/config") == {"compatibilityLevel": "FULL"}
    given = {
        "compatibility": "NONE",
        "alias": "b",
        "normalize": True,
        "compatibilityGroup": "g",
        "validateFields": True,
    }
    assert call("PUT", "/config/a", given) == given
    assert call("GET", "/config/a")["compatibilityGroup"] == "g"
    assert call("DELETE", "/config/a")["compatibilityLevel"] == "NONE"
    assert call("GET", "/config/a?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert call("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert call("GET", "/mode") == {"mode": "READWRITE"}
    for mode in ("READONLY_OVERRIDE", "IMPORT", "FORWARD", "READONLY", "READWRITE"):
        assert call("PUT", "/mode", {"mode": mode}) == {"mode": mode}
        assert call("GET", "/mode") == {"mode": mode}
    assert call("PUT", "/mode/a", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert call("POST", "/subjects/a/versions", {"schema": INT, "id": 50, "version": 4}) == {"id": 50}
    assert call("GET", "/subjects/a/versions") == [4]
    assert call("DELETE", "/mode/a") == {"mode": "IMPORT"}


def test_compatibility_is_told_with_its_reasons(call: Caller) -> None:
    call.register("a", INT)
    path = "/compatibility/subjects/a/versions"
    assert call("POST", f"{path}/latest", {"schema": WIDER}) == {"is_compatible": True}
    found = call("POST", f"{path}?verbose=true", {"schema": OTHER})
    assert found["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in found["messages"][0]
    assert call("POST", f"{path}?verbose=True", {"schema": WIDER}) == {"is_compatible": True, "messages": []}


def test_contracts_come_back_as_they_were_given(call: Caller) -> None:
    metadata = {"properties": {"owner": "us", "b": "1", "a": "2"}, "tags": {"**.x": ["PII"]}, "sensitive": ["owner"]}
    rule = {"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "x > 0", "params": {"k": "v"}}
    rules = {"domainRules": [rule], "migrationRules": []}
    call("POST", "/subjects/a/versions", {"schema": INT, "metadata": metadata, "ruleSet": rules})

    for path in ("/subjects/a/versions/1", "/schemas/ids/1", "/subjects/a/metadata?key=owner&value=us"):
        found = call("GET", path)
        assert orjson.dumps(found["metadata"]) == orjson.dumps(metadata)
        assert found["ruleSet"] == rules
    assert call.refused("GET", "/subjects/a/metadata?key=owner&value=them") == (404, 40403)
    assert call("POST", "/subjects/a", {"schema": INT})["version"] == 1


def test_lists_come_in_parts(call: Caller) -> None:
    for number in range(1, 6):
        call.register(f"s{number}", f'{{"type":"fixed","name":"F","size":{number}}}')

    assert call("GET", "/subjects?offset=1&limit=2") == ["s2", "s3"]
    assert call("GET", "/subjects?limit=-1&deleted=False&deleted_only=False") == [f"s{n}" for n in range(1, 6)]
    assert call("GET", "/subjects?offset=9") == []
    assert [one["subject"] for one in call("GET", "/schemas?limit=2&offset=3")] == ["s4", "s5"]


def test_the_gateway_tells_what_the_registry_holds(call: Caller, gateway: Any) -> None:
    call.register("a", INT)

    page = gateway.http.get("/metrics").text
    assert "mq_registry_subjects 1\n" in page
    assert "mq_registry_ready 1\n" in page
    assert 'route="/subjects/{subject}/versions"' in page
    assert call("GET", "/v1/metadata/id")["scope"]["clusters"]["kafka-cluster"]
    assert call("GET", "/v1/metadata/version")["version"]
