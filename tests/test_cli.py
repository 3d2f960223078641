"""The command ``sagents-nb``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sagents_nb import __version__, cli

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


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
