"""The wheel, installed in an environment of its own outside the checkout, has everything and works."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, folder: Path) -> str:
    """Run a command that must succeed; what it printed."""
    # Nothing of the checkout, and nothing of the environment that runs the tests, may help.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, folder=ROOT)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the commands of a fresh environment with the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    venv.create(folder, with_pip=False)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    run(sys.executable, "-m", "pip", "--python", commands / "python", "install", "--quiet", wheel, folder=folder)
    return commands


def test_the_wheel_carries_code_static_files_and_tutorials_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "sagents_nb").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    tutorials = {f"sagents_nb/_notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert carried == package | tutorials
    assert "sagents_nb/_notebooks/01_first_agent.ipynb" in carried
    assert {Path(name).suffix for name in carried} >= {".py", ".js", ".css", ".jinja", ".typed", ".ipynb"}


def test_the_demo_runs_and_writes_its_report(installed: Path, tmp_path: Path) -> None:
    printed = run(installed / "sagents-nb", "demo", folder=tmp_path)
    assert "before_model" in printed
    assert "completed" in printed
    report = (tmp_path / "sagents-demo.html").read_text(encoding="utf-8")
    assert report.lower().startswith("<!doctype html>")


LOOK = """
import json, sagents_nb
from sagents_nb import Agent, ScriptedModel
from sagents_nb.views import sandwich_html
from sagents_nb.widgets import ChatView, Workbench

names = [name for name in sagents_nb.__all__ if getattr(sagents_nb, name) is not None]
agent = Agent(model=ScriptedModel(["hi"]))
session = agent.session()
html = [Workbench(session).html(), ChatView(session).html(), sandwich_html(agent.stack)]
session.stop()
print(json.dumps({"names": names, "home": sagents_nb.__file__, "html": html}))
"""


def test_every_public_name_can_be_imported_and_a_view_is_drawn(installed: Path, tmp_path: Path) -> None:
    import sagents_nb

    found = json.loads(run(installed / "python", "-c", LOOK, folder=tmp_path))
    assert found["names"] == list(sagents_nb.__all__)
    assert Path(found["home"]).is_relative_to(installed.parent)
    drawn = [[part for part in ("sag-chat", "sag-sandwich") if f'class="{part}' in html] for html in found["html"]]
    assert drawn == [["sag-chat", "sag-sandwich"], ["sag-chat"], ["sag-sandwich"]]


def test_lab_copies_the_tutorials_and_serves_them_until_it_is_told_to_stop(installed: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(installed / "sagents-nb"), "lab", "--no-browser", "--port", str(port)]
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"JUPYTER_TOKEN": "test", "IPYTHONDIR": str(tmp_path / "ipython")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | own
    with (tmp_path / "log").open("w") as log:
        lab = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            served = _get(f"http://127.0.0.1:{port}/api/contents?token=test", lab, tmp_path / "log")
            specs = _get(f"http://127.0.0.1:{port}/api/kernelspecs?token=test", lab, tmp_path / "log")
        finally:
            lab.send_signal(signal.SIGTERM)
            lab.wait(30)
    assert "01_first_agent.ipynb" in {item["name"] for item in served["content"]}
    assert "python3" in specs["kernelspecs"]
    with pytest.raises(ConnectionRefusedError):  # JupyterLab itself has ended, not only the command that started it
        socket.create_connection(("127.0.0.1", port))


def _get(url: str, lab: subprocess.Popen[bytes], log: Path) -> Any:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            if lab.poll() is not None:
                break
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab does not answer at {url}:\n{log.read_text()[-3000:]}")
