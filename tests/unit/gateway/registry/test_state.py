"""What records make of the state, whoever wrote them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_machine import facts, replayed

from penstock.gateway.registry.deciding import Written
from penstock.gateway.registry.questions import content_by_id, holders_of, referrer_ids
from penstock.schemas.schema import Reference
from penstock.schemas.stored.records import (
    ClearSubject,
    ConfigRecord,
    DeleteSubject,
    ModeRecord,
    Noop,
    Read,
    Record,
    SchemaGone,
    SchemaRecord,
    key_of,
    value_of,
)
from penstock.schemas.stored.state import State


def state_of(*records: Record) -> State:
    return replayed([Written(key_of(record), value_of(record)) for record in records])


def schema(subject: str, version: int, number: int, text: str = '"string"', **more: Any) -> SchemaRecord:
    return SchemaRecord(subject, version, number, "AVRO", text, **more)


def test_one_schema_under_two_subjects_is_held_once() -> None:
    state = state_of(schema("a", 1, 1), schema("b", 1, 1), schema("b", 2, 2, '"int"'))

    first, second = state.version("a", 1), state.version("b", 1)
    assert first is not None
    assert second is not None
    assert first.content is second.content
    assert [(one.subject, one.version) for one in holders_of(state, 1)] == [("a", 1), ("b", 1)]
    assert state.next_id(".") == 3


def test_a_soft_deleted_version_stays_readable_by_its_id_and_no_more() -> None:
    state = state_of(schema("a", 1, 1), schema("a", 2, 2, '"int"'), schema("a", 2, 2, '"int"', deleted=True))

    latest = state.subjects["a"].latest
    assert latest is not None
    assert latest.version == 1
    assert content_by_id(state, 2) is not None
    assert holders_of(state, 2) == []
    assert len(holders_of(state, 2, deleted=True)) == 1


def test_a_deleted_subject_is_deleted_up_to_the_version_that_was_named() -> None:
    state = state_of(schema("a", 1, 1), schema("a", 2, 2, '"int"'), DeleteSubject("a", 2), schema("a", 3, 3, '"long"'))

    assert [(one.version, one.deleted) for one in state.subjects["a"].ordered()] == [(1, True), (2, True), (3, False)]


def test_a_tombstone_takes_the_id_with_its_last_holder_but_the_number_is_not_given_again() -> None:
    state = state_of(schema("a", 1, 1), schema("b", 1, 1), SchemaGone("a", 1))
    assert content_by_id(state, 1) is not None

    state = state_of(schema("a", 1, 1), schema("b", 1, 1), SchemaGone("a", 1), SchemaGone("b", 1))
    assert content_by_id(state, 1) is None
    assert state.subjects == {}
    assert state.next_id(".") == 2


def test_an_id_that_two_schemas_claim_stays_with_the_first() -> None:
    state = state_of(schema("a", 1, 1), schema("b", 1, 1, '"int"'))

    assert state.conflicts == 1
    found = content_by_id(state, 1)
    assert found is not None
    assert found[1].text == '"string"'
    assert "b" not in state.subjects


def test_the_only_holder_of_an_id_may_be_overwritten() -> None:
    state = state_of(schema("a", 1, 1), schema("a", 1, 1, '"int"'))

    found = content_by_id(state, 1)
    assert found is not None
    assert found[1].text == '"int"'
    assert state.versions_held == 1


def test_ids_of_contexts_are_apart() -> None:
    state = state_of(schema("a", 1, 1), schema(":.sales:a", 1, 1, '"int"'), schema(":.sales:a", 2, 2, '"long"'))

    assert state.conflicts == 0
    assert state.next_id(".") == 2
    assert state.next_id(".sales") == 3
    assert state.context_names() == [".", ".sales"]
    assert content_by_id(state, 2) is None
    found = content_by_id(state, 1, ":.sales:")
    assert found is not None
    assert found[1].text == '"int"'


def test_clearing_forgets_what_is_deleted_where_it_is_said() -> None:
    gone = {"deleted": True}
    records = [
        schema("a", 1, 1, **gone),
        schema("a", 2, 2, '"int"'),
        schema("b", 1, 1, **gone),
        schema(":.sales:a", 1, 1, **gone),
    ]

    assert sorted(state_of(*records, ClearSubject("a")).subjects) == [":.sales:a", "a", "b"]
    assert list(state_of(*records, ClearSubject("a")).subjects["a"].versions) == [2]
    assert sorted(state_of(*records, ClearSubject(":.sales:")).subjects) == ["a", "b"]
    assert sorted(state_of(*records, ClearSubject(None)).subjects) == ["a"]


def test_only_versions_that_are_not_deleted_refer() -> None:
    reference = (Reference("other", "a", 1),)
    refers = schema("b", 1, 2, '"x"', references=reference)
    inside = schema(":.sales:b", 1, 2, '"x"', references=reference)

    state = state_of(schema("a", 1, 1), refers, inside)
    assert referrer_ids(state, "a", 1) == [2]
    assert referrer_ids(state, ":.sales:a", 1) == [2], "a name within a context is one of that context"
    assert referrer_ids(state_of(schema("a", 1, 1), refers, DeleteSubject("b", 1)), "a", 1) == []
    assert referrer_ids(state_of(schema("a", 1, 1), refers, SchemaGone("b", 1)), "a", 1) == []


def test_garbage_is_counted_and_passed_over() -> None:
    state = replayed(
        [
            Written(b"\xff", b"\xff"),
            Written(b'{"keytype":"FUTURE","magic":9}', b"{}"),
            Written(key_of(schema("a", 1, 1)), value_of(schema("a", 1, 1))),
        ]
    )

    assert state.unreadable == 2
    assert list(state.subjects) == ["a"]


SUBJECTS = st.sampled_from(["a", "b", ":.c:a"])
TEXTS = st.sampled_from(['"string"', '"int"', '"long"', '"bytes"'])
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        SchemaRecord,
        SUBJECTS,
        st.integers(1, 4),
        st.integers(1, 4),
        st.just("AVRO"),
        TEXTS,
        st.sampled_from([(), (Reference("r", "a", 1),)]),
        st.sampled_from([None, '{"properties":{"k":"v"}}']),
        st.none(),
        st.booleans(),
    ),
    st.builds(SchemaGone, SUBJECTS, st.integers(1, 4)),
    st.builds(DeleteSubject, SUBJECTS, st.integers(0, 4)),
    st.builds(ClearSubject, st.sampled_from([None, "a", ":.c:"])),
    st.builds(ConfigRecord, st.sampled_from([None, "a"]), st.sampled_from([None, {"compatibilityLevel": "NONE"}])),
    st.builds(ModeRecord, st.sampled_from([None, "a"]), st.sampled_from([None, "IMPORT"])),
    st.builds(Noop, st.just({".": 2})),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(RECORDS, max_size=25))
def test_whatever_is_applied_the_indexes_agree_with_the_versions(records: list[Record]) -> None:
    state = State()
    highest = 0
    for record in records:
        state.apply(Read(record, None))
        assert state.next_id(".") > highest
        highest = state.next_id(".") - 1

        held = [version for subject in state.subjects.values() for version in subject.versions.values()]
        assert state.versions_held == len(held)
        assert all(subject.versions for subject in state.subjects.values())
        by_id = [version for context in state.contexts.values() for one in context.ids.values() for version in
                 one.versions.values()]  # fmt: skip
        assert {id(version) for version in by_id} == {id(version) for version in held}
        for context in state.contexts.values():
            for number, one in context.ids.items():
                assert one.versions
                assert all(version.content.id == number for version in one.versions.values())
                assert len({(version.content.kind, version.content.text) for version in one.versions.values()}) == 1
            assert all(context.ids.get(one.content.id) is one for one in context.by_digest.values())
        for subject in state.subjects.values():
            live = [number for number, version in subject.versions.items() if not version.deleted]
            assert (None if subject.latest is None else subject.latest.version) == max(live, default=None)
        referring = {(version.subject, version.version) for version in held
                     if version.content.references and not version.deleted}  # fmt: skip
        assert set().union(*state.referrers.values()) == referring
    assert (
        facts(replayed([Written(key_of(one), value_of(one)) for one in records]))["versions"]
        == facts(state)["versions"]
    )


@pytest.mark.parametrize("spelling", [b'{"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}'])
def test_a_foreign_spelling_is_forgotten_with_its_tombstone(spelling: bytes) -> None:
    state = replayed([Written(spelling, value_of(schema("a", 1, 1)))])
    assert state.spare_keys == {key_of(schema("a", 1, 1)): spelling}

    state = replayed([Written(spelling, value_of(schema("a", 1, 1))), Written(spelling, None)])
    assert state.spare_keys == {}
    assert state.subjects == {}
