"""The user's Python: `module:name`, looked up beside the pipeline file first, then where Python looks.

Called by pipeline.graph (parameters, read from the text, nothing is run) and by pipeline.steps (the thing itself).
Modules beside the file travel to Spark's workers by value: a worker on another machine has no such file.
"""

import ast
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from penstock.spark.pipeline.nearest import did_you_mean


class Parameters(NamedTuple):
    names: tuple[str, ...]
    optional: frozenset[str]
    takes_any: bool


class NoSuchCode(Exception):
    """The module or the name in it is not there; the message says which."""


def parameters_of(code: str, folder: Path) -> Parameters:
    """Of a function or a class's constructor, without running its module."""
    module, _, name = code.partition(":")
    file = _file_of(module, folder)
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except SyntaxError as fault:
        raise NoSuchCode(f"{file}:{fault.lineno} is not Python: {fault.msg}") from None
    defined = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
    }
    node = defined.get(name)
    if node is None:
        raise NoSuchCode(f"module {module} has no `{name}`{did_you_mean(name, defined)}")
    if isinstance(node, ast.ClassDef):
        inits = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        return _parameters(inits[0], skipped=1) if inits else Parameters((), frozenset(), takes_any=bool(node.bases))
    return _parameters(node, skipped=0)


def load_code(code: str, folder: Path) -> Any:
    module, _, name = code.partition(":")
    loaded = _load_beside(module, folder)
    try:
        return getattr(loaded if loaded is not None else importlib.import_module(module), name)
    except (ImportError, AttributeError) as fault:
        raise NoSuchCode(str(fault)) from fault


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, skipped: int) -> Parameters:
    arguments = node.args
    by_position = [*arguments.posonlyargs, *arguments.args][skipped:]
    names = [argument.arg for argument in (*by_position, *arguments.kwonlyargs)]
    optional = {argument.arg for argument in by_position[len(by_position) - len(arguments.defaults) :]}
    if not arguments.defaults:
        optional = set()
    optional |= {
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    return Parameters(tuple(names), frozenset(optional), takes_any=arguments.kwarg is not None)


def _file_of(module: str, folder: Path) -> Path:
    beside = _beside(module, folder)
    if beside is not None:
        return beside
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise NoSuchCode(f"there is no module {module}, neither beside the file nor among what is installed")
    return Path(found.origin)


def _beside(module: str, folder: Path) -> Path | None:
    base = folder.joinpath(*module.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)


def _load_beside(module: str, folder: Path) -> ModuleType | None:
    file = _beside(module, folder)
    if file is None:
        return None
    # A name of its own: two pipelines in one process may each have a `steps.py`.
    unique = f"penstock_pipeline_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}_{file.stem}"
    known = sys.modules.get(unique)
    if known is not None:
        return known
    found = importlib.util.spec_from_file_location(unique, file)
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    sys.modules[unique] = loaded
    before = set(sys.modules)
    # So that it may import its neighbours.
    sys.path.insert(0, str(folder.resolve()))
    try:
        found.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[unique]
        raise
    finally:
        sys.path.remove(str(folder.resolve()))
    neighbours = [sys.modules[name] for name in set(sys.modules) - before if name in sys.modules]
    _send_by_value([loaded, *(one for one in neighbours if _is_in(one, folder))])
    return loaded


def _is_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).resolve().is_relative_to(folder.resolve())


def _send_by_value(modules: list[ModuleType]) -> None:
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)
