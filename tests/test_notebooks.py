"""Every tutorial runs, in a fresh kernel, and shows what the saved notebook shows; and again where it ran before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_notebook_runs_twice_with_the_outputs_it_was_saved_with(tmp_path: Path) -> None:
    for notebook in NOTEBOOKS:
        shutil.copy(notebook, tmp_path)
    command = [
        *(sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout", "60"),
        *("--nbval-sanitize-with", str(ROOT / "tests" / "nbval_sanitize.cfg"), "-p", "no:cacheprovider"),
        *("-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    environment.pop("ANTHROPIC_API_KEY", None)
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_is_complete_small_and_shows_pictures_without_a_kernel(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), "run all cells before saving"
    bundles = [output.data for cell in code for output in cell.outputs if "data" in output]
    pictures = [data["text/html"] for data in bundles if "text/html" in data]
    assert any("sag-sandwich" in html for html in pictures)
    assert any("sag-chat" in html for html in pictures)
    # A saved live widget would be shown as "model not found" in place of its picture.
    assert not [data for data in bundles if "application/vnd.jupyter.widget-view+json" in data]
    assert max(len(html) for html in pictures) < 300_000
