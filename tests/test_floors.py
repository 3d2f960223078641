"""A module imports only from its own floor and from those below it; who looks up does so through a named door.

Every import counts: at the top, inside functions, by name with `import_module`, and under ``TYPE_CHECKING``. One kind of
upward name is allowed: a module that calls a function of the door may name, under ``TYPE_CHECKING``, what that function
gives back. It is listed here one by one, since an annotation is all it may be used for, and importing it at run time
would be an error here.
"""

from __future__ import annotations

import ast
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import sagents_nb

ROOT = Path(sagents_nb.__file__).parent

FLOORS = {
    **dict.fromkeys(["value", "ids", "frozen", "errors", "messages", "deltas", "state", "todos", "changes"], 1),
    **dict.fromkeys(["tools", "interrupts", "events", "waiting", "main_thread", "preprocess"], 1),
    **dict.fromkeys(["models", "hooks", "stack"], 2),
    **dict.fromkeys(["middleware", "files"], 3),
    **dict.fromkeys(["execution", "agent"], 4),
    "server": 5,
    "store": 6,
    **dict.fromkeys(["views", "widgets", "magics", "cli", "demo"], 7),
}
"""Floor of each module and package."""

DOOR = "_late"
"""The module that looks up by name; it is on no floor, and anybody may import it."""

DOOR_LEADS_TO = {
    "sagents_nb.server.kernel",
    "sagents_nb.server.runtime",
    "sagents_nb.server.session",
    "sagents_nb.views",
}
"""What the door looks up: floors 5 and 7."""

NAMES_NOT_KNOWN_HERE = {"store.query"}
"""Modules that import by a name of their caller's: `query` turns a result into the user's kind of data frame."""

NAMED_BY_ANNOTATIONS = {("agent", "sagents_nb.server.session")}
"""Upward imports under TYPE_CHECKING: what a function of the door gives back."""

HEAVY = {"IPython", "ipykernel", "ipywidgets", "anywidget", "traitlets", "jupyter_client", "duckdb", "anthropic"}
"""What floors 1 to 5 never import, apart from the one module that speaks to Claude."""

SPEAKS_TO_CLAUDE = "models.anthropic"
"""The module that may import anthropic, though only inside functions."""

UNKNOWN = "?"
"""What an import by a name that does not stand in the source imports."""


def modules(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts != ("__init__",):
            yield ".".join(part for part in parts if part != "__init__"), path


@functools.cache
def imports(source: str) -> list[tuple[str, bool]]:
    """Every module that is imported, and whether only a type checker ever imports it."""
    return list(_imports(source))


def _imports(source: str) -> Iterator[tuple[str, bool]]:
    tree = ast.parse(source)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            assert node.module is not None
            if node.module == "sagents_nb":
                yield from ((f"sagents_nb.{_home(alias.name)}", id(node) in for_types) for alias in node.names)
            else:
                yield node.module, id(node) in for_types
        elif isinstance(node, ast.Call):
            # import_module("x"), and also submit(import_module, "x")
            parts = [node.func, *node.args]
            if any(ast.unparse(part).rpartition(".")[2] in {"import_module", "__import__"} for part in parts):
                names = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
                yield from ((name, False) for name in names or [UNKNOWN])


def _home(name: str) -> str:
    """Where a public name lives; a module is its own home."""
    return "value" if name == "__version__" else sagents_nb._MODULE_OF.get(name, name)


def upward(name: str, source: str) -> list[str]:
    """What a module imports from above, in words."""
    floor = FLOORS[name.partition(".")[0]]
    found = []
    for module, for_types in imports(source):
        head, _, rest = module.partition(".")
        if head != "sagents_nb" or rest.partition(".")[0] == DOOR:
            continue
        if not rest:
            found.append(f"{name} imports all of sagents_nb; import from the module that is meant")
            continue
        target = FLOORS[rest.partition(".")[0]]
        if target > floor and not (for_types and (name, module) in NAMED_BY_ANNOTATIONS):
            found.append(f"{name} (floor {floor}) imports {module} (floor {target})")
    return found


def test_every_module_has_a_floor() -> None:
    assert sorted({name.partition(".")[0] for name, _ in modules()} - FLOORS.keys() - {DOOR}) == []


def all_upward(root: Path) -> list[str]:
    return [words for name, path in modules(root) if name != DOOR for words in upward(name, path.read_text())]


def test_nothing_imports_from_above() -> None:
    assert all_upward(ROOT) == []


def test_an_import_from_above_would_be_seen_in_the_package(tmp_path: Path) -> None:
    copy = shutil.copytree(ROOT, tmp_path / "sagents_nb", ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "execution" / "loop.py").open("a") as module:
        module.write("\n\ndef peek():\n    from sagents_nb.store import Store\n\n    return Store\n")
    assert all_upward(copy) == ["execution.loop (floor 4) imports sagents_nb.store (floor 6)"]


def test_the_door_leads_where_it_says_and_nobody_else_imports_by_an_unknown_name() -> None:
    found = {name: {module for module, _ in imports(path.read_text())} for name, path in modules()}
    assert {module for module in found[DOOR] if module.startswith("sagents_nb") or module == UNKNOWN} == DOOR_LEADS_TO
    assert {name for name, imported in found.items() if UNKNOWN in imported} == NAMES_NOT_KNOWN_HERE


def test_no_upward_annotation_is_listed_that_is_not_there() -> None:
    paths = dict(modules())
    for name, module in NAMED_BY_ANNOTATIONS:
        assert (module, True) in imports(paths[name].read_text())


def test_an_import_from_above_would_be_seen_wherever_it_stands() -> None:
    seen = {
        "import sagents_nb.store": 1,
        "from sagents_nb.server.session import Session": 1,
        "from sagents_nb import store": 1,
        "from sagents_nb import Store": 1,
        "def f():\n    from sagents_nb.views import state_html": 1,
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sagents_nb.server.registry import Registry": 1,
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sagents_nb.server.session import Session": 0,
        "if not TYPE_CHECKING:\n    from sagents_nb.server.session import Session": 1,
        "import sagents_nb": 1,
        "import importlib\nimportlib.import_module('sagents_nb.views')": 1,
        "from importlib import import_module\nsubmit(import_module, 'sagents_nb.store')": 1,
        "from sagents_nb import _late": 0,
        "from sagents_nb.state import State": 0,
    }
    assert {source: len(upward("agent", source)) for source in seen} == seen


def test_the_core_never_imports_jupyter_a_database_or_a_provider() -> None:
    found = [
        f"{name} imports {module}"
        for name, path in modules()
        if name != DOOR and FLOORS[name.partition(".")[0]] <= 5
        for module, _ in imports(path.read_text())
        if module.partition(".")[0] in HEAVY and (name, module) != (SPEAKS_TO_CLAUDE, "anthropic")
    ]
    assert found == []


def test_anthropic_is_imported_only_inside_functions_of_one_module() -> None:
    at_once = [
        name
        for name, path in modules()
        for statement in ast.parse(path.read_text()).body
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for module, _ in imports(ast.unparse(statement))
        if module.partition(".")[0] == "anthropic"
    ]
    assert at_once == []
    users = {name for name, path in modules() for module, _ in imports(path.read_text()) if module == "anthropic"}
    assert users == {SPEAKS_TO_CLAUDE}


def test_the_views_never_import_jupyter() -> None:
    found = [
        f"{name} imports {module}"
        for name, path in modules()
        if name.startswith("views")
        for module, _ in imports(path.read_text())
        if module.partition(".")[0] in HEAVY
    ]
    assert found == []


def test_the_door_imports_nothing_before_it_is_used() -> None:
    tree = ast.parse((ROOT / f"{DOOR}.py").read_text())
    imported = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert [module for module in imported if module and module.startswith("sagents_nb")] == []
