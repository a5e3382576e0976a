"""Names of subjects and contexts as callers give them, in the one spelling that is kept.

Called by whatever reads a request. What a name means is in penstock.schemas.stored.names.
"""

from penstock.gateway.registry.refusals import invalid_subject
from penstock.schemas.stored.names import qualified

SUBJECT_CHARACTERS_MAX = 1000


def checked_subject(subject: str) -> str:
    """As given in a path, in the one spelling that is kept."""
    name = qualified(subject).full
    if not name or len(name) > SUBJECT_CHARACTERS_MAX or not _is_clean(name):
        raise invalid_subject(subject)
    return name


def checked_context(context: str) -> str:
    """As given in /contexts/{context}: with or without the colons, with or without the dot."""
    bare = context.strip(":")
    bare = bare if bare.startswith(".") else f".{bare}"
    if ":" in bare or len(bare) > SUBJECT_CHARACTERS_MAX or not _is_clean(bare):
        raise invalid_subject(context)
    return bare


def _is_clean(name: str) -> bool:
    return all(character >= " " and not "\x7f" <= character <= "\x9f" for character in name) and not any(
        "\ud800" <= character <= "\udfff" for character in name
    )
