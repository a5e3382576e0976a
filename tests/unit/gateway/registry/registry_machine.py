"""A registry without a cluster, for tests: decisions become bytes, bytes become records, records the state."""

from collections.abc import Sequence
from typing import Any

from penstock.gateway.registry import registering
from penstock.gateway.registry.deciding import Decision, Written, encode
from penstock.gateway.registry.finding import Candidate
from penstock.gateway.registry.parsing import Parser
from penstock.schemas.stored.records import read_record
from penstock.schemas.stored.state import State


class Machine:
    def __init__(self) -> None:
        self.state = State()
        self.parser = Parser()
        self.log: list[Written] = []

    async def register(self, subject: str, text: str, kind: str = "AVRO", **more: Any) -> tuple[int, int]:
        """The id and the version."""
        done = await registering.register(self.state, self.parser, Candidate(subject, kind, text, **more))
        answer = self.do(done)
        return answer.id, answer.version

    def do(self, decision: Decision[Any]) -> Any:
        self.write(encode(self.state, decision.records))
        return decision.answer

    def write(self, records: Sequence[Written]) -> None:
        for record in records:
            self.log.append(record)
            self.state.apply(read_record(record.key, record.value))

    def compacted(self) -> list[Written]:
        """What is left of the log when only the newest record of each key is kept, and no deleted ones."""
        newest = {record.key: place for place, record in enumerate(self.log)}
        return [
            record for place, record in enumerate(self.log) if newest[record.key] == place and record.value is not None
        ]


def replayed(records: Sequence[Written]) -> State:
    state = State()
    for record in records:
        state.apply(read_record(record.key, record.value))
    return state


def facts(state: State) -> Any:
    """Everything that can be asked of a state, in a form that compares."""
    return {
        "versions": {
            name: [(one.version, one.content.id, one.content.text, one.deleted) for one in subject.ordered()]
            for name, subject in state.subjects.items()
        },
        "latest": {
            name: None if subject.latest is None else subject.latest.version for name, subject in state.subjects.items()
        },
        "next": {name: state.next_id(name) for name in sorted({*state.contexts, *state.ids_given})},
        "ids": {
            name: {number: sorted(held.versions) for number, held in context.ids.items()}
            for name, context in state.contexts.items()
            if context.ids
        },
        "configs": state.configs,
        "modes": state.modes,
        "referrers": state.referrers,
    }
