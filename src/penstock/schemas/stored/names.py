"""Names: a subject lies in a context, and `:.sales:orders-value` is the subject `orders-value` of the context `.sales`.

Called by every file of this room and by the gateway's registry. Laws:
- The default context is "."; its subjects are written without it, so that `:.:orders` and `orders` are one name.
- A name that ends after its context, `:.sales:`, means all of the context: its settings, its mode, a prefix.
"""

from typing import NamedTuple

DEFAULT_CONTEXT = "."
# A context whose settings apply where neither a subject nor its own context has any.
GLOBAL_CONTEXT = ".__GLOBAL"
EVERY_CONTEXT = ":*:"


class Qualified(NamedTuple):
    context: str
    name: str

    @property
    def full(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def qualified(subject: str) -> Qualified:
    if not subject.startswith(":."):
        return Qualified(DEFAULT_CONTEXT, subject)
    context, _, name = subject[1:].partition(":")
    return Qualified(context, name)


def context_of(subject: str) -> str:
    return qualified(subject).context


def whole_context(context: str) -> str:
    """The name that means all of a context; of the default one, the empty name."""
    return Qualified(context, "").full


def in_context_of(parent: str, subject: str) -> str:
    """A reference names its subject as seen from the schema that refers."""
    if subject.startswith(":."):
        return qualified(subject).full
    return Qualified(context_of(parent), subject).full
