"""A registered schema as other parts of the gateway get it.

Made by registry.py; used by REST and the console to read and write values.
"""

from dataclasses import dataclass, field

from penstock.schemas.schema import ParsedSchema, Reference, SchemaError


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    id: int
    subject: str
    version: int
    kind: str
    text: str
    references: tuple[Reference, ...]
    outcome: ParsedSchema | SchemaError = field(repr=False, compare=False)

    @property
    def parsed(self) -> ParsedSchema:
        """Raises SchemaError where another registry took a schema that cannot be read here."""
        if isinstance(self.outcome, SchemaError):
            raise self.outcome
        return self.outcome
