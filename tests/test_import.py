"""What ``import sagents_nb`` costs, and what its namespace promises."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import sagents_nb

HEAVY = [
    *["ipywidgets", "anywidget", "duckdb", "anthropic", "IPython"],
    *["pydantic", "jinja2", "tenacity", "asyncio", "opentelemetry"],
]

PROGRAM = """
import json, resource, sys

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

before = cpu()
import sagents_nb
spent = cpu() - before
{more}
print(json.dumps({{"modules": sorted(sys.modules), "spent": spent}}))
"""


def import_in_a_process(more: str = "") -> tuple[set[str], float]:
    """The modules that are loaded then, and the CPU seconds of ``import sagents_nb``."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(more=more)], capture_output=True, text=True, check=True, timeout=60
    )
    told = json.loads(done.stdout)
    return set(told["modules"]), told["spent"]


def modules_after(more: str = "") -> set[str]:
    return import_in_a_process(more)[0]


def test_the_package_is_imported_without_anything_heavy() -> None:
    assert sorted(modules_after() & set(HEAVY)) == []


def test_the_package_is_imported_in_next_to_no_time() -> None:
    spent = min(import_in_a_process()[1] for _ in range(3))
    print(f"import sagents_nb: {spent * 1000:.1f} ms of CPU")
    assert spent < 0.2


def test_what_agents_are_made_of_needs_neither_jupyter_nor_a_database_nor_a_provider() -> None:
    found = modules_after("from sagents_nb import Agent, Middleware, ScriptedModel, State, tool")
    assert sorted(found & {"ipywidgets", "anywidget", "duckdb", "anthropic", "IPython", "jinja2"}) == []


def test_an_agent_needs_neither_jupyter_nor_a_database_nor_a_provider() -> None:
    more = "from sagents_nb import Agent, ScriptedModel\nAgent(model=ScriptedModel(['hi'])).run('hello')"
    heavy = {"ipywidgets", "anywidget", "duckdb", "anthropic", "IPython", "jinja2", "tenacity", "opentelemetry"}
    assert sorted(modules_after(more) & heavy) == []


@pytest.mark.parametrize("name", sagents_nb.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(sagents_nb, name) is not None
    assert name in dir(sagents_nb)


def test_the_lazy_names_are_those_the_type_checker_sees() -> None:
    tree = ast.parse(Path(sagents_nb.__file__).read_text())
    checked = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom)
        for alias in inner.names
        if alias.asname
    }
    assert checked == set(sagents_nb.__all__) - {"__version__"}


@pytest.mark.parametrize("package", ["middleware", "models", "server", "execution", "views", "widgets", "store"])
def test_what_a_sub_package_promises_is_there(package: str) -> None:
    module = import_module(f"sagents_nb.{package}")
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


def test_an_unknown_name_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(AttributeError, match=r"sagents_nb has no 'Agnt' \(did you mean 'Agent'\?\)"):
        sagents_nb.Agnt  # noqa: B018
