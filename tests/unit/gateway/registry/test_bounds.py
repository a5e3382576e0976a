"""What keeps the registry small, whatever is asked of it."""

import asyncio

import pytest
from registry_machine import Machine

from penstock.gateway.registry import registry, schema_routes
from penstock.gateway.registry.deciding import Decision
from penstock.gateway.registry.refusals import Refusal
from penstock.gateway.registry.registering import CONTEXTS_MAX
from penstock.gateway.registry.registry import Registry
from penstock.gateway.registry.schema_routes import SchemaRoutes
from penstock.schemas.stored.content import Context


async def test_contexts_are_bounded(machine: Machine) -> None:
    for number in range(CONTEXTS_MAX):
        machine.state.contexts[f".c{number}"] = Context()

    with pytest.raises(Refusal) as refused:
        await machine.register(":.one-more:a", '"int"')
    assert refused.value.code == 42205
    await machine.register("a", '"int"')


async def test_changes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "WRITES_WAITING_MAX", 2)
    made = Registry("127.0.0.1:1", {}, "_schemas")
    monkeypatch.setattr(type(made._follower), "is_current", True)
    never = asyncio.Event()

    async def waits(*_: object) -> None:
        await never.wait()

    async def decided() -> Decision[None]:
        return Decision((), None)

    monkeypatch.setattr(made, "_change", waits)
    waiting = [asyncio.create_task(made.change(decided)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Refusal) as refused:
        await made.change(decided)
    assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})
    never.set()
    await asyncio.gather(*waiting)
    await made.change(decided)
    await made.close()


async def test_kept_answers_are_bounded_and_only_of_the_state_they_were_made_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_routes, "ANSWERS_BYTES_MAX", 800)
    made = Registry("127.0.0.1:1", {}, "_schemas")
    routes = SchemaRoutes(made)
    routes._answers_epoch = 1
    for number in range(100):
        routes._keep(b"/schemas/ids/%d" % number, b"x" * 80, 1)
    assert routes._answers_bytes <= 800
    assert b"/schemas/ids/99" in routes._answers
    routes._keep(b"/large", b"x" * 101, 1)
    routes._keep(b"/late", b"x", 0)
    assert not {b"/large", b"/late"} & set(routes._answers)
    await made.close()
