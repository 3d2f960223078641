"""The README's code runs as it stands."""

from __future__ import annotations

import asyncio
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
    module.__dict__["_await"] = asyncio.run
    for block in blocks:
        exec(compile(block, str(README), "exec"), module.__dict__)
    assert len(blocks) == 4
    asyncio.run(module.__dict__["watch"]())
