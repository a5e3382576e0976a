"""Registering, deleting, modes and settings: what is decided, and with which number it is refused."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from registry_machine import Machine, facts, replayed

from penstock.gateway.registry import deciding, finding, questions, registering
from penstock.gateway.registry.finding import Candidate
from penstock.gateway.registry.questions import LATEST, Deleted
from penstock.gateway.registry.refusals import Refusal
from penstock.gateway.registry.scope import Mode, config_in_scope, level_in_scope, mode_in_scope, parse_config
from penstock.schemas.schema import KINDS, Level, Reference
from penstock.schemas.stored.closure import CLOSURE_MAX, DEPTH_MAX
from penstock.schemas.stored.records import Noop, SchemaRecord, key_of, value_of


def record(**fields: str) -> str:
    """An Avro record; a field's value is its type, with a default where it ends with a `?`."""
    made: list[Any] = []
    for name, kind in fields.items():
        made.append({"name": name, "type": kind.removesuffix("?"), **({"default": 0} if kind.endswith("?") else {})})
    return orjson.dumps({"type": "record", "name": "R", "fields": made}).decode()


async def refused(work: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await work
    return caught.value


def code_of(decide: Callable[[], object]) -> int:
    with pytest.raises(Refusal) as caught:
        decide()
    return caught.value.code


async def test_ids_belong_to_schemas_and_versions_to_subjects(machine: Machine) -> None:
    assert await machine.register("a", record(x="int")) == (1, 1)
    assert await machine.register("a", record(x="int", y="int?")) == (2, 2)
    assert await machine.register("b", record(x="int", y="int?")) == (2, 1), "the same schema keeps its id"
    assert await machine.register("a", record(x="int")) == (1, 1), "registered once, found ever after"
    assert await machine.register("b", record(x="int")) == (1, 2)
    assert await machine.register(":.sales:a", record(x="int")) == (1, 1), "a context counts for itself"
    assert len(machine.log) == 6
    assert facts(replayed(machine.log)) == facts(machine.state)


async def test_a_schema_in_another_spelling_is_the_same_schema(machine: Machine) -> None:
    await machine.register("a", '{"type": "record", "name": "R", "fields": [ {"type": "int", "name": "x"} ]}')

    spelled = '{"type":"record","name":"R","fields":[{"type":"int","name":"x"}]}'
    assert await machine.register("a", spelled) == (1, 1)


async def test_what_another_registry_printed_otherwise_is_found_by_its_meaning(machine: Machine) -> None:
    printed = '{ "type" : "record", "name" : "R", "fields" : [ {"name":"x", "type":"int"} ] }'
    other = SchemaRecord("a", 1, 9, "AVRO", printed)
    machine.write([deciding.Written(key_of(other), value_of(other))])

    assert await machine.register("a", record(x="int")) == (9, 1)
    found = await finding.find(machine.state, machine.parser, Candidate("a", "AVRO", record(x="int")))
    assert found is not None
    assert found.content.text == printed


async def test_normalizing_makes_spellings_one(machine: Machine) -> None:
    loose = '{"name":"R","type":"record","fields":[{"type":{"type":"string"},"name":"x"}]}'
    tight = '{"type":"record","name":"R","fields":[{"name":"x","type":"string"}]}'
    await machine.register("a", tight, normalize=True)

    assert await machine.register("a", loose, normalize=True) == (1, 1)
    machine.do(deciding.set_config(machine.state, None, parse_config({"normalize": True})))
    assert await machine.register("a", loose) == (1, 1), "as a setting it needs no saying"


@pytest.mark.parametrize(
    ("level", "new", "is_taken"),
    [
        (Level.NONE, record(z="string"), True),
        (Level.BACKWARD, record(x="int", y="int"), False),
        (Level.BACKWARD, record(x="int", y="int?"), True),
        # With the first version it does not get along, with the last it does.
        (Level.BACKWARD, record(w="int"), True),
        (Level.BACKWARD_TRANSITIVE, record(w="int"), False),
        (Level.FORWARD, record(x="int", v="int"), False),
        (Level.FORWARD, record(x="int", w="int", v="int"), True),
        (Level.FORWARD_TRANSITIVE, record(w="int", v="int"), False),
        (Level.FULL, record(x="int", w="int", v="int"), False),
        (Level.FULL, record(w="int", x="int?"), True),
        (Level.FULL_TRANSITIVE, record(w="int", u="int?"), False),
    ],
)
async def test_every_level_compares_with_what_it_names(
    machine: Machine, level: Level, new: str, is_taken: bool
) -> None:
    machine.do(deciding.set_config(machine.state, None, parse_config({"compatibility": "NONE"})))
    await machine.register("a", record(x="int"))
    await machine.register("a", record(x="int?", w="int"))
    machine.do(deciding.set_config(machine.state, "a", parse_config({"compatibility": level.value.lower()})))

    if is_taken:
        assert (await machine.register("a", new))[1] == 3
    else:
        refusal = await refused(machine.register("a", new))
        assert (refusal.status, refusal.code) == (409, 409)


async def test_deleting_a_subject_softly_then_for_good(machine: Machine) -> None:
    state = machine.state
    await machine.register("a", record(x="int"))
    await machine.register("a", record(x="int", y="int?"))
    machine.do(deciding.set_config(state, "a", parse_config({"compatibility": "FULL"})))
    machine.do(deciding.set_mode(state, "a", Mode.READWRITE, force=False))

    assert code_of(lambda: deciding.delete_subject(state, "nobody", permanent=False)) == 40401
    assert code_of(lambda: deciding.delete_subject(state, "a", permanent=True)) == 40405
    assert machine.do(deciding.delete_subject(state, "a", permanent=False)) == [1, 2]
    assert state.configs == {}
    assert state.modes == {}
    assert code_of(lambda: deciding.delete_subject(state, "a", permanent=False)) == 40404
    assert list(questions.subjects(state)) == []
    assert list(questions.subjects(state, deleted=Deleted.ONLY)) == ["a"]

    assert await machine.register("a", record(x="int", z="int?")) == (3, 3), "versions go on after those deleted"
    machine.do(deciding.delete_subject(state, "a", permanent=False))
    assert machine.do(deciding.delete_subject(state, "a", permanent=True)) == [1, 2, 3]
    assert state.subjects == {}
    assert await machine.register("a", record(q="int")) == (4, 1), "an id is never given to another schema"


async def test_ids_are_not_given_again_even_when_compaction_has_left_nothing_of_them(machine: Machine) -> None:
    for subject in ("a", ":.sales:a"):
        await machine.register(subject, record(x="int"))
        machine.do(deciding.delete_subject(machine.state, subject, permanent=False))
        machine.do(deciding.delete_subject(machine.state, subject, permanent=True))

    fresh = replayed(machine.compacted())

    assert fresh.subjects == {}
    assert fresh.next_id(".") == 2
    assert fresh.next_id(".sales") == 2


async def test_deleting_versions(machine: Machine) -> None:
    state = machine.state
    await machine.register("a", record(x="int"))
    await machine.register("a", record(x="int", y="int?"))
    machine.do(deciding.set_config(state, "a", parse_config({"compatibility": "FULL"})))

    assert code_of(lambda: deciding.delete_version(state, "b", 1, permanent=False)) == 40401
    assert code_of(lambda: deciding.delete_version(state, "a", 9, permanent=False)) == 40402
    assert code_of(lambda: deciding.delete_version(state, "a", 1, permanent=True)) == 40407
    assert machine.do(deciding.delete_version(state, "a", LATEST, permanent=False)) == 2
    assert code_of(lambda: deciding.delete_version(state, "a", 2, permanent=False)) == 40406
    assert state.configs
    assert machine.do(deciding.delete_version(state, "a", 1, permanent=False)) == 1
    assert state.configs == {}, "settings go with the last version"
    assert machine.do(deciding.delete_version(state, "a", 1, permanent=True)) == 1
    assert [one.version for one in questions.versions(state, "a", Deleted.SHOWN)] == [2]


async def test_registering_what_was_deleted_makes_a_new_version_with_the_old_id(machine: Machine) -> None:
    await machine.register("a", record(x="int"))
    machine.do(deciding.delete_subject(machine.state, "a", permanent=False))

    assert await machine.register("a", record(x="int")) == (1, 2)
    assert list(machine.state.subjects["a"].versions) == [2]


async def test_references_hold_what_they_refer_to(machine: Machine) -> None:
    state = machine.state
    inner = '{"type":"record","name":"Inner","namespace":"n","fields":[]}'
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"n.Inner"}]}'
    await machine.register("inner", inner)
    refusal = await refused(machine.register("outer", outer, references=(Reference("n.Inner", "inner", 7),)))
    assert (refusal.code, "inner" in refusal.message) == (42201, True)

    await machine.register("outer", outer, references=(Reference("n.Inner", "inner", -1),))

    held = state.version("outer", 1)
    assert held is not None
    assert held.content.references == (Reference("n.Inner", "inner", 1),), "the latest, by the number it had then"
    assert questions.referrer_ids(state, "inner", 1) == [2]
    assert code_of(lambda: deciding.delete_version(state, "inner", 1, permanent=False)) == 42206
    assert code_of(lambda: deciding.delete_subject(state, "inner", permanent=False)) == 42206
    machine.do(deciding.delete_subject(state, "outer", permanent=False))
    machine.do(deciding.delete_subject(state, "inner", permanent=False))
    refusal = await refused(machine.register("third", outer, references=(Reference("n.Inner", "inner", 1),)))
    assert refusal.code == 42201, "what is deleted cannot be referred to anew"


async def test_references_are_bounded_in_depth_and_number(machine: Machine) -> None:
    def write(subject: str, number: int, references: tuple[Reference, ...]) -> None:
        made = SchemaRecord(subject, 1, number, "AVRO", f'{{"type":"fixed","name":"F{number}","size":1}}', references)
        machine.write([deciding.Written(key_of(made), value_of(made))])

    for number in range(1, DEPTH_MAX + 3):
        write(f"deep{number}", number, (Reference("x", f"deep{number - 1}", 1),) if number > 1 else ())
    write("round1", 900, (Reference("x", "round2", 1),))
    write("round2", 901, (Reference("x", "round1", 1),))
    for number in range(1000, 1000 + CLOSURE_MAX + 1):
        write(f"wide{number}", number, ())
    half = tuple(Reference(f"x{n}", f"wide{n}", 1) for n in range(1000, 1000 + CLOSURE_MAX // 2 + 1))
    rest = tuple(Reference(f"x{n}", f"wide{n}", 1) for n in range(1000 + CLOSURE_MAX // 2 + 1, 1000 + CLOSURE_MAX + 1))
    write("half1", 2000, half)
    write("half2", 2001, rest)

    for names in (["round1"], [f"deep{DEPTH_MAX + 2}"], ["half1", "half2"]):
        references = tuple(Reference(name, name, 1) for name in names)
        refusal = await refused(machine.register("new", '"string"', references=references))
        assert refusal.code == 42201, names


async def test_modes_say_who_may_write(machine: Machine) -> None:
    state = machine.state
    await machine.register("a", record(x="int"))
    assert (await refused(machine.register("a", record(y="int"), id=7))).code == 42205

    machine.do(deciding.set_mode(state, "a", Mode.READONLY, force=False))
    assert (await refused(machine.register("a", record(x="int", y="int?")))).code == 42205
    assert code_of(lambda: deciding.delete_subject(state, "a", permanent=False)) == 42205
    assert code_of(lambda: deciding.set_config(state, "a", {"compatibilityLevel": "FULL"})) == 42205
    assert await machine.register("b", record(x="int")) == (1, 1), "another subject is not concerned"

    machine.do(deciding.set_mode(state, "a", Mode.READWRITE, force=False))
    machine.do(deciding.set_mode(state, None, Mode.READONLY_OVERRIDE, force=False))
    assert mode_in_scope(state, "a") is Mode.READONLY_OVERRIDE, "it beats what a subject says"
    assert mode_in_scope(state, ":.sales:a") is Mode.READONLY_OVERRIDE
    machine.do(deciding.delete_mode(state, None))
    assert machine.do(deciding.delete_mode(state, "a")) == "READWRITE"
    assert code_of(lambda: deciding.delete_mode(state, "a")) == 40401
    assert machine.do(deciding.delete_mode(state, None)) == "READWRITE"


async def test_import_takes_ids_and_versions_as_they_come(machine: Machine) -> None:
    state = machine.state
    await machine.register("a", record(x="int"))
    assert code_of(lambda: deciding.set_mode(state, None, Mode.IMPORT, force=False)) == 42205
    assert code_of(lambda: deciding.set_mode(state, "a", Mode.IMPORT, force=False)) == 42205
    machine.do(deciding.set_mode(state, ":.copy:", Mode.IMPORT, force=False))

    assert await machine.register(":.copy:a", record(x="int"), id=100, version=5) == (100, 5)
    assert await machine.register(":.copy:a", record(y="string"), id=50, version=3) == (50, 3), "nothing is compared"
    assert await machine.register(":.copy:b", record(y="string"), id=50) == (50, 1)
    assert (await refused(machine.register(":.copy:c", record(z="int"), id=50))).code == 42205
    assert (await refused(machine.register(":.copy:a", record(z="int"), id=51, version=3))).code == 42205
    assert (await refused(machine.register(":.copy:a", record(z="int")))).code == 42205

    machine.do(deciding.set_mode(state, ":.copy:", Mode.READWRITE, force=False))
    machine.do(deciding.set_config(state, ":.copy:", parse_config({"compatibility": "NONE"})))
    assert await machine.register(":.copy:a", record(z="int")) == (101, 6)
    machine.do(deciding.set_mode(state, "a", Mode.IMPORT, force=True))


async def test_import_forgets_what_was_deleted_in_its_place(machine: Machine) -> None:
    await machine.register("a", record(x="int"))
    machine.do(deciding.delete_subject(machine.state, "a", permanent=False))

    machine.do(deciding.set_mode(machine.state, None, Mode.IMPORT, force=False))

    assert machine.state.subjects == {}
    assert await machine.register("a", record(q="string"), id=1, version=1) == (1, 1)


async def test_a_version_that_is_named_must_be_the_next(machine: Machine) -> None:
    await machine.register("a", record(x="int"))

    assert (await refused(machine.register("a", record(x="int", y="int?"), version=7))).code == 42201
    number, version = await machine.register("a", record(x="int", y="int?"), version=2)
    held = machine.state.version("a", version)
    assert held is not None
    assert orjson.loads(held.content.metadata or "")["properties"] == {"confluent:version": "2"}
    assert number == 2


async def test_contracts_are_kept_inherited_and_overridden(machine: Machine) -> None:
    state = machine.state
    metadata = {"properties": {"owner": "us", "zone": "eu"}, "tags": {"x": ["PII"]}, "sensitive": ["owner"]}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "expr": "true"}]}
    await machine.register("a", record(x="int"), metadata=metadata, rule_set=rules)
    first = state.version("a", 1)
    assert first is not None
    assert orjson.loads(first.content.metadata or "") == metadata
    assert orjson.loads(first.content.rule_set or "") == rules

    await machine.register("a", record(x="int", y="int?"))
    second = state.version("a", 2)
    assert second is not None
    assert second.content.rule_set == first.content.rule_set, "a version inherits"

    override = {"overrideMetadata": {"properties": {"zone": "us"}}, "defaultMetadata": {"properties": {"team": "t"}}}
    override |= {"overrideRuleSet": {"domainRules": [{"name": "r", "expr": "false"}, {"name": "s"}]}}
    machine.do(deciding.set_config(state, "a", parse_config(override)))
    await machine.register("a", "", metadata={"properties": {"zone": "asia"}})
    third = state.version("a", 3)
    assert third is not None
    assert third.content.text == second.content.text, "without a schema, that of the version before"
    assert orjson.loads(third.content.metadata or "")["properties"] == {"team": "t", "zone": "us"}
    assert [rule["name"] for rule in orjson.loads(third.content.rule_set or "")["domainRules"]] == ["r", "s"]
    assert third.content.id == 3, "another contract is another schema"

    found = await finding.find(state, machine.parser, Candidate("a", "AVRO", record(x="int")))
    assert found is first, "who gives no contract means the schema"
    assert questions.latest_with(state, "a", {"zone": "eu"}, deleted=False).version == 2
    with pytest.raises(Refusal):
        questions.latest_with(state, "a", {"zone": "mars"}, deleted=False)


async def test_a_compatibility_group_divides_a_subject(machine: Machine) -> None:
    machine.do(deciding.set_config(machine.state, "a", parse_config({"compatibilityGroup": "major"})))
    await machine.register("a", record(x="int"), metadata={"properties": {"major": "1"}})

    refusal = await refused(machine.register("a", record(y="string"), metadata={"properties": {"major": "1"}}))
    assert refusal.code == 409
    await machine.register("a", record(y="string"), metadata={"properties": {"major": "2"}})
    await machine.register("a", record(x="int", z="int?"), metadata={"properties": {"major": "1"}})


async def test_settings_are_those_of_the_nearest_that_has_them(machine: Machine) -> None:
    state = machine.state

    def put(subject: str | None, **given: object) -> None:
        machine.do(deciding.set_config(state, subject, parse_config(given)))

    assert level_in_scope(state, "a") is Level.BACKWARD
    put(None, compatibility="FULL", normalize=True)
    put("a", compatibility="NONE")
    assert config_in_scope(state, "a") == {"compatibilityLevel": "NONE", "normalize": True}
    assert level_in_scope(state, "b") is Level.FULL
    assert level_in_scope(state, ":.sales:a") is Level.BACKWARD, "another context does not see the registry's"
    put(":.__GLOBAL:", compatibility="FORWARD")
    assert level_in_scope(state, ":.sales:a") is Level.FORWARD
    put(":.sales:", compatibility="FULL_TRANSITIVE")
    assert level_in_scope(state, ":.sales:a") is Level.FULL_TRANSITIVE
    put("a", compatibility=None, alias="b")
    assert state.configs["a"] == {"alias": "b"}
    assert level_in_scope(state, "a") is Level.FULL
    assert code_of(lambda: deciding.delete_config(state, "nobody")) == 40401
    machine.do(deciding.delete_config(state, None))
    assert level_in_scope(state, "b") is Level.BACKWARD
    await machine.register("b", record(x="int"))
    assert questions.version(state, "a", LATEST).subject == "b", "an alias is read through"


async def test_another_type_of_schema_is_incompatible(machine: Machine) -> None:
    await machine.register("a", record(x="int"))

    refusal = await refused(machine.register("a", '{"type":"object"}', "JSON"))
    assert (refusal.code, "JSON" in refusal.message) == (409, True)


async def test_a_schema_that_our_parser_refuses_stays_readable_and_stops_nothing_else(machine: Machine) -> None:
    foreign = SchemaRecord("a", 1, 4, "AVRO", '{"type":"unheard-of"}')
    machine.write([deciding.Written(key_of(foreign), value_of(foreign))])

    assert questions.content_by_id(machine.state, 4) is not None
    refusal = await refused(machine.register("a", record(x="int")))
    assert (refusal.code, "version 1" in refusal.message) == (409, True)
    machine.do(deciding.set_config(machine.state, "a", parse_config({"compatibility": "NONE"})))
    assert await machine.register("a", record(x="int")) == (5, 2)


async def test_a_foreign_spelling_of_a_key_cannot_bring_a_deleted_schema_back(machine: Machine) -> None:
    held = SchemaRecord("a", 1, 1, "AVRO", '"string"')
    spelling = b'{"magic":1,"keytype":"SCHEMA","version":1,"subject":"a"}'
    machine.write([deciding.Written(spelling, value_of(held))])

    machine.do(deciding.delete_subject(machine.state, "a", permanent=False))
    machine.do(deciding.delete_subject(machine.state, "a", permanent=True))

    assert machine.state.subjects == {}
    assert replayed(machine.compacted()).subjects == {}


async def test_compatibility_is_tested_without_writing(machine: Machine) -> None:
    async def differs(subject: str, text: str, version: int | None) -> bool:
        candidate = Candidate(subject, "AVRO", text)
        return bool(await registering.test_compatibility(machine.state, machine.parser, candidate, version))

    await machine.register("a", record(x="int"))
    await machine.register("a", record(x="int", y="int?"))
    written = len(machine.log)

    assert await differs("a", record(z="int"), 1)
    assert await differs("a", record(z="int"), None)
    assert not await differs("a", record(y="int"), LATEST), "a field is dropped"
    assert await differs("a", record(y="int"), 1)
    assert not await differs("nobody", record(y="int"), LATEST)
    assert (await refused(differs("a", record(x="int"), 9))).code == 40402
    assert (await refused(differs("nobody", record(x="int"), 1))).code == 40401
    assert (await refused(differs("nobody", "{", LATEST))).code == 42201
    assert len(machine.log) == written


async def test_what_is_looked_up_is_found_or_told_apart(machine: Machine) -> None:
    async def look_up(subject: str, text: str, deleted: bool = False) -> int:
        candidate = Candidate(subject, "AVRO", text)
        return (await finding.look_up(machine.state, machine.parser, candidate, deleted=deleted)).version

    await machine.register("a", record(x="int"))
    await machine.register("a", record(x="int", y="int?"))
    assert await look_up("a", record(x="int")) == 1
    assert (await refused(look_up("a", record(q="int")))).code == 40403
    assert (await refused(look_up("nobody", record(q="int")))).code == 40401
    assert (await refused(look_up("a", "{"))).code == 42201
    machine.do(deciding.delete_version(machine.state, "a", 1, permanent=False))
    assert (await refused(look_up("a", record(x="int")))).code == 40403
    assert await look_up("a", record(x="int"), deleted=True) == 1
    machine.do(deciding.delete_subject(machine.state, "a", permanent=False))
    assert (await refused(look_up("a", record(x="int")))).code == 40401
    assert await look_up("a", record(x="int"), deleted=True) == 1


def test_the_kinds_are_those_that_clients_know() -> None:
    assert sorted(KINDS) == ["AVRO", "JSON", "PROTOBUF"]
    assert key_of(Noop({})) == b'{"keytype":"NOOP","magic":0}'
