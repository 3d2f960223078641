"""The scripts, run by sh in a checkout of stubs: what they look for, make, install and say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ("sh", "cat", "chmod", "cmp", "cp", "dirname", "id", "mkdir", "rm", "tr")

# What `python -m venv` makes here: commands that write down what they are asked.
FAKE_VENV = """
mkdir -p .venv/bin
for name in python sagents-nb ruff mypy pytest; do
    printf '#!/bin/sh\\necho "%s $*" >>calls\\n[ "$FAIL" != "%s" ]\\n' "$name" "$name" >.venv/bin/$name
    chmod +x .venv/bin/$name
done
"""


def python_stub(*, new: bool = True, ensurepip: bool = True) -> str:
    """A Python that answers what the scripts ask, and makes a fake venv."""
    return f"""#!/bin/sh
case "$*" in
    *"sys.version_info <"*) exit {0 if new else 1} ;;
    *ensurepip*) exit {0 if ensurepip else 1} ;;
    *print*) echo 3.12 ;;
    *--version*) echo Python 3.12.1 ;;
    "-m venv .venv") {FAKE_VENV} ;;
esac
"""


@dataclass
class Checkout:
    """A checkout with the real scripts, and a PATH with little on it."""

    path: Path

    def command(self, name: str, text: str) -> None:
        """Put a command on the PATH."""
        file = self.path / "stubs" / name  # not beside the links: a write would follow one to the machine's own command
        file.write_text(text)
        file.chmod(0o755)

    def sh(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script, from another folder."""
        return subprocess.run(
            [str(self.path / "bin" / "sh"), str(self.path / "scripts" / script), *arguments],
            cwd="/",
            env={"PATH": f"{self.path / 'stubs'}:{self.path / 'bin'}", "FAIL": "", **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def calls(self) -> list[str]:
        """What the commands in .venv were asked since the last look, questions about pip and version left out."""
        file = self.path / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("python -c")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    path = tmp_path / "check out"  # with a space, as people have it
    shutil.copytree(ROOT / "scripts", path / "scripts")
    (path / "pyproject.toml").write_text("[project]\n")
    (path / "bin").mkdir()
    (path / "stubs").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found
        (path / "bin" / tool).symlink_to(found)
    return Checkout(path)


def test_a_python_in_a_folder_with_a_space_can_be_asked_for(checkout: Checkout) -> None:
    checkout.command("my python", python_stub())
    assert checkout.sh("lab", PYTHON=str(checkout.path / "stubs" / "my python")).returncode == 0


@pytest.mark.parametrize("script", ["lab", "test"])
def test_a_search_path_for_cd_leads_nowhere_else(checkout: Checkout, tmp_path: Path, script: str) -> None:
    checkout.command("python3", python_stub())
    (tmp_path / "trap" / "scripts").mkdir(parents=True)
    done = subprocess.run(
        [checkout.path / "bin" / "sh", f"scripts/{script}", "x"],
        cwd=checkout.path,
        env={
            "PATH": f"{checkout.path / 'stubs'}:{checkout.path / 'bin'}",
            "FAIL": "",
            "CDPATH": str(tmp_path / "trap"),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (checkout.path / ".venv" / "made-in").exists()


def test_a_link_to_the_checkout_is_the_checkout(checkout: Checkout, tmp_path: Path) -> None:
    checkout.command("python3", python_stub())
    checkout.sh("lab")
    (tmp_path / "link").symlink_to(checkout.path)
    assert Checkout(tmp_path / "link").sh("lab").stdout == ""


@pytest.mark.parametrize("script", ["lab", "test"])
def test_no_python_that_is_new_enough(checkout: Checkout, script: str) -> None:
    checkout.command("python3", python_stub(new=False))
    done = checkout.sh(script)
    assert done.returncode == 2
    assert done.stderr == (
        "sagents_nb needs Python 3.11 or newer, and there is none on the PATH.\n"
        "Debian: apt install python3 python3-venv    macOS: brew install python    or set PYTHON=/path/to/python3\n"
    )


def test_a_wrong_python_that_was_asked_for_is_not_replaced_in_silence(checkout: Checkout) -> None:
    checkout.command("python3", python_stub())
    done = checkout.sh("lab", PYTHON="/no/python")
    assert done.returncode == 2
    assert done.stderr == "PYTHON is '/no/python', which is not a Python 3.11 or newer; unset it, or set it to one.\n"


def test_a_python_without_ensurepip_names_the_package_to_install(checkout: Checkout) -> None:
    checkout.command("python3", python_stub(ensurepip=False))
    done = checkout.sh("lab")
    assert done.returncode == 2
    assert done.stderr == (
        "python3 cannot make a virtual environment: its venv module is not complete.\n"
        "Debian: apt install python3.12-venv\n"
    )
    assert not (checkout.path / ".venv").exists()


def test_the_newest_python_is_taken(checkout: Checkout) -> None:
    checkout.command("python3", python_stub(new=False))
    checkout.command("python3.13", python_stub())
    assert checkout.sh("lab").returncode == 0


def test_lab_installs_once_and_again_when_the_project_file_changed(checkout: Checkout) -> None:
    checkout.command("python3", python_stub())
    install = "python -m pip install --quiet --disable-pip-version-check -e ."
    assert checkout.sh("lab").returncode == 0
    assert checkout.calls() == [install, "sagents-nb lab"]
    assert checkout.sh("lab", "class", "--port", "9000").stdout == ""
    assert checkout.calls() == ["sagents-nb lab class --port 9000"]
    (checkout.path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    checkout.sh("lab")
    assert checkout.calls() == [install, "sagents-nb lab"]


def test_an_install_that_failed_is_tried_again(checkout: Checkout) -> None:
    checkout.command("python3", python_stub())
    checkout.sh("lab")
    (checkout.path / ".venv" / "installed").unlink()
    stub = checkout.path / ".venv" / "bin" / "python"
    stub.write_text('#!/bin/sh\ncase "$*" in *install*) exit 1 ;; esac\n')
    assert checkout.sh("lab").returncode == 2
    assert not (checkout.path / ".venv" / "installed").exists()


@pytest.mark.parametrize("harm", ["broken", "moved"])
def test_a_venv_that_does_not_work_is_made_anew(checkout: Checkout, harm: str) -> None:
    checkout.command("python3", python_stub())
    checkout.sh("lab")
    if harm == "broken":
        (checkout.path / ".venv" / "bin" / "python").unlink()
    else:
        moved = checkout.path.with_name("elsewhere")
        checkout.path.rename(moved)
        checkout.path = moved
    done = checkout.sh("lab")
    assert done.returncode == 0
    assert done.stdout == "Making .venv with Python 3.12.1\nInstalling sagents-nb\n"


def test_test_with_arguments_is_pytest_with_them(checkout: Checkout) -> None:
    checkout.command("python3", python_stub())
    assert checkout.sh("test", "tests/core", "-k", "a b").returncode == 0
    assert checkout.calls() == [
        "python -m pip install --quiet --disable-pip-version-check -e .[test]",
        "pytest tests/core -k a b",
    ]


PARTS = ["lint", "format", "types", "tests and notebooks", "browser"]


def test_test_runs_all_parts(checkout: Checkout) -> None:
    checkout.command("python3", python_stub())
    done = checkout.sh("test")
    assert done.returncode == 0
    assert checkout.calls()[1:] == [
        "ruff check .",
        "ruff format --check .",
        "mypy ",
        "pytest -m not browser -n 2 --dist loadfile",
        "pytest -m browser",
    ]
    assert done.stdout.splitlines()[-5:] == [f"== passed: {part}" for part in PARTS]


@pytest.mark.parametrize(("failing", "parts"), [("ruff", PARTS[:2]), ("mypy", PARTS[2:3]), ("pytest", PARTS[3:])])
def test_a_part_that_fails_stops_no_other_and_fails_the_whole(
    checkout: Checkout, failing: str, parts: list[str]
) -> None:
    checkout.command("python3", python_stub())
    done = checkout.sh("test", FAIL=failing)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-5:] == [f"== {'FAILED' if part in parts else 'passed'}: {part}" for part in PARTS]


def test_without_a_browser_the_tests_go_on(checkout: Checkout) -> None:
    checkout.command("python3", python_stub())
    checkout.command("id", "#!/bin/sh\necho 1000\n")
    checkout.command("apt-get", "#!/bin/sh\necho must not be asked >&2\n")
    checkout.sh("test", "x")
    stub = checkout.path / ".venv" / "bin" / "python"
    stub.write_text('#!/bin/sh\necho "python $*" >>calls\ncase "$*" in *find*) exit 1 ;; esac\n')
    checkout.calls()
    done = checkout.sh("test")
    assert "must not be asked" not in done.stderr
    assert checkout.calls()[0] == "python -m playwright install chromium"
    assert done.stdout.splitlines()[-1] == "== passed: browser"


def test_chromium_is_installed_by_who_may(checkout: Checkout) -> None:
    checkout.command("python3", python_stub())
    checkout.command("id", "#!/bin/sh\necho 1000\n")
    checkout.command("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    checkout.command("true", "#!/bin/sh\n")
    checkout.command(
        "apt-get", '#!/bin/sh\necho "apt-get $*" >>calls\n[ "$1" = install ] && echo >installed-it\nexit 0\n'
    )
    checkout.sh("test", "x")
    stub = checkout.path / ".venv" / "bin" / "python"
    stub.write_text('#!/bin/sh\ncase "$*" in *find*) [ -e installed-it ] ;; esac\n')
    checkout.calls()
    checkout.sh("test")
    assert checkout.calls()[:2] == ["apt-get update -qq", "apt-get install -y -qq chromium"]


def test_conda_gets_the_floors_of_the_project_file() -> None:
    import re
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {dependency.replace("-", "_") for dependency in project["dependencies"]}
    listed = re.findall(r"^ +- ([\w-]+[<>=].*)$", (ROOT / "environment.yml").read_text(), flags=re.MULTILINE)
    assert {line.replace("-", "_") for line in listed} == wanted | {f"python{project['requires-python']}"}


def test_without_any_browser_one_line_says_how_to_get_one(tmp_path: Path) -> None:
    program = "from tests.browser import chromium; chromium._MAC = (); chromium.find()"
    kept = {name: value for name, value in os.environ.items() if name != "CHROMIUM"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**kept, "PATH": str(tmp_path), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "RuntimeError: the browser tests need Chromium: `apt-get install -y chromium`, or "
        "`python -m playwright install chromium`, or install Chrome or Edge, or set CHROMIUM=/path/to/it"
    )
