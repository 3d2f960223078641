"""One JupyterLab and one browser for all browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.browser.lab import Lab

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    try:
        chromium.find()
    except RuntimeError as error:
        pytest.fail(str(error), pytrace=False)  # never a skip: without them nobody knows that the widgets work
    with Lab(tmp_path_factory.mktemp("lab")) as running:
        yield running
