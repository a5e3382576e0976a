"""What can change between two JSON Schemas: the names that Confluent's registry gives the changes, and their meaning.

Called by json_differences.py (which change is it?) and json_schema.py (does it break readers, and how to say so). The
names and which of them are compatible are Confluent's published rules; clients and tools look for them in answers.
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.schemas.schema import Incompatible


class Change(NamedTuple):
    """One change; `path` leads to it from the root, in the words of the schema."""

    kind: str
    path: str


COMPATIBLE = frozenset(
    [
        "ID_CHANGED",
        "DESCRIPTION_CHANGED",
        "TITLE_CHANGED",
        "DEFAULT_CHANGED",
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "MAX_LENGTH_INCREASED",
        "MAX_LENGTH_REMOVED",
        "MIN_LENGTH_DECREASED",
        "MIN_LENGTH_REMOVED",
        "PATTERN_REMOVED",
        "MAXIMUM_INCREASED",
        "MAXIMUM_REMOVED",
        "MINIMUM_DECREASED",
        "MINIMUM_REMOVED",
        "EXCLUSIVE_MAXIMUM_INCREASED",
        "EXCLUSIVE_MAXIMUM_REMOVED",
        "EXCLUSIVE_MINIMUM_DECREASED",
        "EXCLUSIVE_MINIMUM_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "MAX_PROPERTIES_INCREASED",
        "MAX_PROPERTIES_REMOVED",
        "MIN_PROPERTIES_DECREASED",
        "MIN_PROPERTIES_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "MAX_ITEMS_INCREASED",
        "MAX_ITEMS_REMOVED",
        "MIN_ITEMS_DECREASED",
        "MIN_ITEMS_REMOVED",
        "UNIQUE_ITEMS_REMOVED",
        "MAX_CONTAINS_INCREASED",
        "MAX_CONTAINS_REMOVED",
        "MIN_CONTAINS_DECREASED",
        "MIN_CONTAINS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    ]
)

_SENTENCES = {
    "SCHEMA_ADDED": "the reader asks for a schema where the writer wrote anything",
    "TYPE_NARROWED": "the writer's numbers may have a fraction, the reader's may not",
    "TYPE_CHANGED": "the reader's type takes no values of the writer's type",
    "PATTERN_CHANGED": "the reader's pattern is another one, so texts of the writer's may not match it",
    "MULTIPLE_OF_EXPANDED": "the reader takes only some of the writer's multiples",
    "MULTIPLE_OF_CHANGED": "the reader's multiples are not the writer's",
    "REQUIRED_ATTRIBUTE_ADDED": "the reader requires the property, without a default, and writers could leave it out",
    "DEPENDENCY_ARRAY_EXTENDED": "the reader asks for more properties beside this one",
    "DEPENDENCY_ARRAY_CHANGED": "the reader asks for other properties beside this one",
    "DEPENDENCY_SCHEMA_ADDED": "the reader asks for a schema when this property is there",
    "ADDITIONAL_PROPERTIES_REMOVED": "the reader takes no other properties, and writers could add some",
    "ADDITIONAL_PROPERTIES_NARROWED": "the reader has a schema for other properties, and writers could write anything",
    "UNEVALUATED_PROPERTIES_REMOVED": "the reader takes no other properties, and writers could add some",
    "UNEVALUATED_PROPERTIES_NARROWED": "the reader has a schema for other properties, and writers could write anything",
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "the property is new, but writers could write anything under its name",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "the reader requires a new property without a default",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "the reader neither knows the property nor takes unknown ones",
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the reader does not know the property, and what it takes from unknown ones does not fit it"
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the property is new, and what writers could write under its name does not fit it"
    ),
    "UNIQUE_ITEMS_ADDED": "the reader takes no item twice, and writers could write one twice",
    "ADDITIONAL_ITEMS_REMOVED": "the reader takes no further items, and writers could add some",
    "ADDITIONAL_ITEMS_NARROWED": "the reader has a schema for further items, and writers could write anything",
    "UNEVALUATED_ITEMS_REMOVED": "the reader takes no further items, and writers could add some",
    "UNEVALUATED_ITEMS_NARROWED": "the reader has a schema for further items, and writers could write anything",
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": "the item is new, but writers could write anything in its place",
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": "the reader neither knows the item nor takes further ones",
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the reader does not know the item, and what it takes from further ones does not fit it"
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the item is new, and what writers could write in its place does not fit it"
    ),
    "ENUM_ARRAY_NARROWED": "the reader lacks values that writers could write",
    "ENUM_ARRAY_CHANGED": "the reader lists other values than the writer",
    "COMBINED_TYPE_CHANGED": "the reader combines its schemas in another, narrower way",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "some of the writer's combined schemas fit none of the reader's",
    "PRODUCT_TYPE_EXTENDED": "the reader asks for more schemas to be met at once",
    "SUM_TYPE_NARROWED": "the reader offers fewer schemas to choose from",
    "NOT_TYPE_EXTENDED": "the reader excludes values that writers could write",
    "COMPARISON_TOO_LARGE": "the schemas are too large or nest too deeply to be compared",
}


def explained(change: Change) -> Incompatible:
    """An incompatible change with a sentence for people."""
    sentence = _SENTENCES.get(change.kind)
    if sentence is None:
        sentence = "the reader's limit is new" if change.kind.endswith("_ADDED") else "the reader's limit is tighter"
        sentence += ", so values of the writer's may break it"
    return Incompatible(change.kind, change.path, f"{sentence} ({change.path})")


def is_compatible(changes: Iterable[Change]) -> bool:
    return all(change.kind in COMPATIBLE for change in changes)


def joined(path: str, below: str) -> str:
    return f"{path}/{below}" if path and below else path or below
