"""Regular expressions of JSON Schemas, matched in linear time.

Called by json_checks.py and json_differences.py. The engine is RE2, so no pattern can make a match take longer than its
text. What RE2 cannot do: look-ahead and look-behind, references back to groups, repetitions over 1,000, property
classes by their long names. A schema that uses those is still registered, since other registries take it and clients
check it with engines that can; here such a pattern counts as matched, `Pattern.is_checked` says so, and
JsonSchema.unchecked_patterns names it. Law: a pattern that is not checked never makes a value invalid.
"""

import re
from functools import cache
from typing import Any, cast

PATTERN_MEMORY_MAX = 1 << 20
_UNICODE_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)


class Pattern:
    """One pattern, searched anywhere in a text as JSON Schema wants it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._compiled = _compiled(source)

    @property
    def is_checked(self) -> bool:
        return self._compiled is not None

    def may_match(self, text: str) -> bool:
        return self._compiled is None or self._compiled.search(text) is not None


def _compiled(source: str) -> Any:
    re2 = _re2()
    # JavaScript writes a character as \u0041, RE2 as \x{0041}.
    spelled = _UNICODE_ESCAPE.sub(lambda found: f"\\x{{{found[1]}}}" if found[1] else found[0], source)
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(spelled, options=options)
    except (re2.error, UnicodeEncodeError):
        return None


@cache
def _re2() -> Any:
    import importlib

    return cast("Any", importlib.import_module("re2"))
