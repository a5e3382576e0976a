"""Settings and modes: those of a subject, else of its context, else of all, else what a registry starts with.

Called by questions.py and deciding.py. Laws:
- Every field of the settings is looked up by itself: a subject that sets only `normalize` keeps the level above it.
- The default context's settings are those of the registry; another context sees its own and those of `.__GLOBAL`.
- READONLY_OVERRIDE of the registry beats whatever a subject says.
- Taking effect here: compatibilityLevel, compatibilityGroup, normalize, alias (for reading), default and override
  contracts. Kept and told, without effect: validateFields, validateRules, compatibilityPolicy.
"""

from enum import StrEnum
from typing import Any, cast

from penstock.gateway.registry.contracts import checked_metadata, checked_rule_set
from penstock.gateway.registry.refusals import bad_request, invalid_compatibility, invalid_mode
from penstock.schemas.schema import Level
from penstock.schemas.stored.names import DEFAULT_CONTEXT, GLOBAL_CONTEXT, qualified, whole_context
from penstock.schemas.stored.state import State

LEVEL = "compatibilityLevel"
DEFAULT_LEVEL = Level.BACKWARD
_CONTRACTS = {
    "defaultMetadata": checked_metadata,
    "overrideMetadata": checked_metadata,
    "defaultRuleSet": checked_rule_set,
    "overrideRuleSet": checked_rule_set,
}
_TEXTS = ("alias", "compatibilityGroup", "compatibilityPolicy")
_SWITCHES = ("normalize", "validateFields", "validateRules")
CONFIG_FIELDS = (LEVEL, *_TEXTS, *_SWITCHES, *_CONTRACTS)
ALIAS_CHARACTERS_MAX = 1000


class Mode(StrEnum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def is_readonly(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)

    @property
    def takes_ids(self) -> bool:
        """Schemas come with the ids they have elsewhere."""
        return self in (Mode.IMPORT, Mode.FORWARD)


def scopes(subject: str | None) -> list[str | None]:
    """Where to look, nearest first; as the keys of the settings are."""
    if subject is None:
        return [None]
    wanted = qualified(subject)
    if wanted.context == DEFAULT_CONTEXT:
        return [subject, None] if wanted.name else [None]
    names: list[str | None] = [whole_context(wanted.context), whole_context(GLOBAL_CONTEXT)]
    return [subject, *names] if wanted.name else names


def settings_key(subject: str | None) -> str | None:
    """The default context as a whole is the registry."""
    return scopes(subject)[0]


def config_in_scope(state: State, subject: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, scope in enumerate(scopes(subject)):
        for name, value in state.configs.get(scope, {}).items():
            # An alias names another subject for one; above subjects it would name it for all.
            if name != "alias" or place == 0:
                found.setdefault(name, value)
    found.setdefault(LEVEL, DEFAULT_LEVEL.value)
    return found


def level_in_scope(state: State, subject: str | None) -> Level:
    return _level(config_in_scope(state, subject)[LEVEL])


def mode_in_scope(state: State, subject: str | None) -> Mode:
    if state.modes.get(None) == Mode.READONLY_OVERRIDE:
        return Mode.READONLY_OVERRIDE
    for scope in scopes(subject):
        mode = state.modes.get(scope)
        if mode is not None:
            return _mode(mode)
    return Mode.READWRITE


def aliased(state: State, subject: str) -> str:
    """The subject that is read under this name. Aliases are not followed twice."""
    alias: object = state.configs.get(subject, {}).get("alias")
    return alias if isinstance(alias, str) and alias else subject


def parse_config(body: object) -> dict[str, Any]:
    """What a caller wants changed; None for a field that is to be forgotten."""
    if not isinstance(body, dict):
        raise bad_request('The body is to be a JSON object such as {"compatibility": "FULL"}.')
    given = cast("dict[str, Any]", body)
    changes: dict[str, Any] = {}
    for name in ("compatibility", LEVEL):
        if name in given:
            changes[LEVEL] = None if given[name] is None else checked_level(given[name])
    for name in _TEXTS:
        if name in given:
            value: object = given[name]
            if value is not None and (not isinstance(value, str) or len(value) > ALIAS_CHARACTERS_MAX):
                raise bad_request(f"{name} is to be text of at most {ALIAS_CHARACTERS_MAX} characters.")
            changes[name] = value or None
    for name in _SWITCHES:
        if name in given:
            if not isinstance(given[name], bool | None):
                raise bad_request(f"{name} is to be true or false.")
            changes[name] = given[name]
    for name, check in _CONTRACTS.items():
        if name in given:
            changes[name] = check(given[name])
    if not changes:
        raise invalid_compatibility(None)
    return changes


def parse_mode(body: object) -> Mode:
    given: object = cast("dict[str, Any]", body).get("mode") if isinstance(body, dict) else None
    try:
        return Mode(str(given).upper())
    except ValueError:
        raise invalid_mode(given) from None


def checked_level(given: object) -> str:
    try:
        return Level(str(given).upper()).value
    except ValueError:
        raise invalid_compatibility(given) from None


def _level(held: object) -> Level:
    # Another registry may have written a level that is not known here: the strictest reading of it is the default.
    try:
        return Level(str(held))
    except ValueError:
        return DEFAULT_LEVEL


def _mode(held: str) -> Mode:
    # Unknown modes must not let anybody write.
    try:
        return Mode(held)
    except ValueError:
        return Mode.READONLY
