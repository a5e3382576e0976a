"""Values from outside the file: ${NAME} and ${NAME:-otherwise} from the environment, and `--set path=value`.

Called by pipeline.loading, before the model is checked. `$${` stands for a `${` that is meant as it is. What came from
the environment may be a password: no message here, nor in loading, quotes a value.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from penstock.spark.errors import BadPipeline
from penstock.spark.pipeline.nearest import did_you_mean
from penstock.spark.pipeline.text import DataPath, Document

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_INSIDE = re.compile(r"([A-Za-z_]\w*)(:-(.*))?", re.DOTALL)

# Below these, names are the user's own and may have dots in them.
_FREE_MAPS = frozenset({"options", "args", "conf"})


def substitute(document: Document, environment: Mapping[str, str]) -> None:
    document.data = _filled(document.data, (), document, environment)


def override(document: Document, settings: Mapping[str, str]) -> None:
    """`sinks.table.delta.path=/data/t`: replaces or adds one value. The maps on the way must be in the file."""
    for name, text in settings.items():
        parts = name.split(".")
        here: Any = document.data
        path: DataPath = ()
        label = f"--set {name}"
        while len(parts) > 1 and not (path and path[-1] in _FREE_MAPS):
            part = parts.pop(0)
            inner: Any = cast(dict[str, Any], here).get(part) if isinstance(here, dict) else None
            if inner is None and isinstance(here, dict) and part in {"kafka", "spark", *_FREE_MAPS}:
                inner = here[part] = {}
            if not isinstance(inner, dict):
                known = list(cast(dict[str, Any], here)) if isinstance(here, dict) else []
                raise BadPipeline(f"{label}: the file has no `{part}` to look into{did_you_mean(part, known)}")
            path, here = (*path, part), cast(Any, inner)
        if not isinstance(here, dict):
            raise BadPipeline(f"{label}: the file holds no names at its top")
        key = ".".join(parts)
        here[key] = text
        document.labels[(*path, key)] = label


def _filled(value: Any, path: DataPath, document: Document, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        named = cast(dict[str, Any], value)
        return {key: _filled(inner, (*path, key), document, environment) for key, inner in named.items()}
    if isinstance(value, list):
        items = cast(list[Any], value)
        return [_filled(inner, (*path, slot), document, environment) for slot, inner in enumerate(items)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def found(reference: re.Match[str]) -> str:
        if reference.group() == "$${":
            return "${"
        before = value[: reference.start()]
        where = document.line_in(path, before.count("\n") + 1, reference.start() - (before.rfind("\n") + 1) + 1)
        inside = _INSIDE.fullmatch(reference.group(1)) if reference.group().endswith("}") else None
        if inside is None:
            raise BadPipeline(f"{where}: write ${{NAME}} or ${{NAME:-otherwise}}, or $${{ for a ${{ that is meant")
        name, otherwise = inside.group(1), inside.group(3)
        if name in environment:
            return environment[name]
        if otherwise is None:
            raise BadPipeline(f"{where}: the environment has no {name}; set it, or write ${{{name}:-otherwise}}")
        return otherwise

    return _REFERENCE.sub(found, value)
