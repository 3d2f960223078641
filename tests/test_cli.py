"""The command ``sagents-nb``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sagents_nb import __version__, cli

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
COMMAND = [sys.executable, "-c", "import sys; from sagents_nb.cli import main; sys.exit(main())"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[list[str], dict[str, str]]]:
    """What would have been started, with its environment."""
    monkeypatch.chdir(tmp_path)
    made: list[tuple[list[str], dict[str, str]]] = []

    def execve(_path: str, command: list[str], environment: dict[str, str]) -> None:
        made.append((command, environment))
        raise SystemExit  # the real one does not return either

    monkeypatch.setattr(os, "execve", execve)
    return made


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"sagents-nb {__version__}\n"


def test_lab_copies_the_tutorials_and_opens_the_first_in_this_environment(started: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        cli.main(["lab", "--no-browser", "--port", "9999"])
    copied = sorted(path.name for path in (tmp_path / "sagents-tutorials").iterdir())
    assert copied == sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
    [(command, environment)] = started
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={tmp_path / 'sagents-tutorials'}" in command
    assert "--LabApp.default_url=/lab/tree/01_first_agent.ipynb" in command
    assert "--no-browser" in command
    assert "--ServerApp.port=9999" in command
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_lab_never_overwrites_and_says_so(started: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "class" / "01_first_agent.ipynb"
    mine.parent.mkdir()
    mine.write_text("my notes")
    with pytest.raises(SystemExit):
        cli.main(["lab", "class"])
    assert mine.read_text() == "my notes"
    assert "class/01_first_agent.ipynb is there already and stays as it is" in capsys.readouterr().out
    assert len(started) == 1


def test_lab_into_a_file_says_what_to_name_instead(
    started: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert cli.main(["lab", "notes.txt"]) == 2
    assert capsys.readouterr().err == (
        "sagents-nb lab: notes.txt is a file; name a folder for the tutorials: sagents-nb lab FOLDER\n"
    )
    assert not started


def test_demo_prints_the_same_every_time_but_for_durations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = []
    for _ in range(2):
        assert cli.main(["demo"]) == 0
        printed.append(re.sub(r"\s+\d+\.\d\d ms", " # ms", capsys.readouterr().out))
    assert printed[0] == printed[1]
    hooks = re.findall(r"[↓↑◆⚙] (\w+) +(\w+)", printed[0])
    turn = [
        ("before_model", "CountCalls"),
        ("before_model", "HouseStyle"),
        ("model", "scripted"),
        ("after_model", "HouseStyle"),
    ]
    assert hooks == [*turn, ("tool", "get_weather"), *turn]
    assert "+ metadata.model_calls: 1" in printed[0]
    assert "\nThe metadata\n  {'model_calls': 2, 'longest': 48}\n" in printed[0]
    page = (tmp_path / "sagents-demo.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert "CountCalls" in page


def test_demo_without_a_folder_for_its_report_says_so_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--html", "reports/run.html"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "sagents-nb demo: there is no folder reports for the report; make it, or name another file: "
        "sagents-nb demo --html FILE\n"
    )


def test_demo_in_a_terminal_that_has_no_arrows(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*COMMAND, "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "before_model  CountCalls" in done.stdout
    assert done.stdout.endswith("Report: sagents-demo.html\n")
    assert (tmp_path / "sagents-demo.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_lab_serves_the_tutorials_on_this_machine_until_it_is_told_to_stop(
    tmp_path: Path, stop: signal.Signals
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"JUPYTER_TOKEN": "test", "IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONPATH": str(ROOT)}
    log = tmp_path / "log"
    with log.open("w") as output:
        lab = subprocess.Popen(
            [*COMMAND, "lab", "class", "--no-browser", "--port", str(port)],
            cwd=tmp_path,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            url = f"http://127.0.0.1:{port}/api/contents/01_first_agent.ipynb?token=test"
            served = _get(url, lab, log)
            for _ in range(5):  # as a person would: one that comes in an unlucky moment of JupyterLab's is lost
                lab.send_signal(stop)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    lab.wait(10)
                    break
            assert lab.poll() is not None
        finally:
            lab.kill()  # nothing happens to one that has ended
            lab.wait()
    copied = nbformat.read(tmp_path / "class" / "01_first_agent.ipynb", as_version=4)
    assert [cell["source"] for cell in served["content"]["cells"]] == [cell.source for cell in copied.cells]
    assert f"http://localhost:{port}/lab" in log.read_text()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def _get(url: str, lab: subprocess.Popen[bytes], log: Path) -> Any:
    until = time.monotonic() + 60
    while lab.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab does not answer at {url}:\n{log.read_text()[-3000:]}")
