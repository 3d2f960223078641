"""The README's code runs as it stands."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import types
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_every_python_block_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)  # dataclasses look their module up
    for block in blocks:
        # As in a notebook, where a cell may await.
        code = compile(block, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(code, module.__dict__)
        if inspect.iscoroutine(waiting):
            asyncio.run(waiting)
    assert len(blocks) == 4
