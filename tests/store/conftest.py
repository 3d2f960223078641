from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sagents_nb.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agents.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A store in a file, with one owner."""
    with Store(path) as opened:
        yield opened


@pytest.fixture
def owned(path: Path) -> Iterator[Store]:
    """A store in a file whose scopes are owners themselves."""
    with Store(path, owner=lambda scope: scope) as opened:
        yield opened
