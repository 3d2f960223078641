"""The command ``sagents-nb``: open the tutorials, or see an agent run in the terminal."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from io import TextIOWrapper
from pathlib import Path

from sagents_nb import __version__

FIRST = "01_first_agent.ipynb"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: as typed, by default those of the process.

    Returns:
        Exit code: 0, or 2 when something is missing.
    """
    parser = argparse.ArgumentParser(prog="sagents-nb", description=__doc__)
    parser.add_argument("--version", action="version", version=f"sagents-nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    lab = commands.add_parser("lab", help="copy the tutorials and open them in JupyterLab")
    lab.add_argument(
        "folder", nargs="?", type=Path, default=Path("sagents-tutorials"), help="where to (default: %(default)s)"
    )
    lab.add_argument("--no-browser", action="store_true", help="only say where JupyterLab listens")
    lab.add_argument("--port", type=int, help="where JupyterLab listens")
    demo = commands.add_parser("demo", help="run an agent in the terminal and write an HTML report")
    demo.add_argument("--html", type=Path, default=Path("sagents-demo.html"), help="the report (default: %(default)s)")
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no arrows gets question marks, not a traceback
    try:
        if options.command == "lab":
            return open_lab(options.folder, browser=not options.no_browser, port=options.port)
        if not options.html.parent.is_dir():
            raise FileNotFoundError(
                f"there is no folder {options.html.parent} for the report; make it, or name another file: "
                "sagents-nb demo --html FILE"
            )
        from sagents_nb.demo import run_demo

        run_demo(options.html)
    except OSError as error:
        print(f"sagents-nb {options.command}: {error}", file=sys.stderr)
        return 2
    return 0


def copy_tutorials(folder: Path) -> list[Path]:
    """Copy the tutorials into a folder; a file that is there stays as it is.

    Args:
        folder: made when it does not exist.

    Returns:
        The files that were copied.

    Raises:
        FileExistsError: `folder` is a file.
        FileNotFoundError: the package came without its tutorials.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name a folder for the tutorials: sagents-nb lab FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    copied = []
    with as_file(files("sagents_nb")) as package:
        carried, checkout = package / "_notebooks", package.parent / "notebooks"
        source = carried if carried.is_dir() else checkout
        tutorials = sorted(source.glob("*.ipynb"))
        if not tutorials:
            raise FileNotFoundError(f"no tutorials in {carried} or {checkout}; install sagents-nb again")
        for tutorial in tutorials:
            target = folder / tutorial.name
            if target.exists():
                print(f"{target} is there already and stays as it is")
            else:
                shutil.copyfile(tutorial, target)
                copied.append(target)
    return copied


def open_lab(folder: Path, *, browser: bool = True, port: int | None = None) -> int:
    """Copy the tutorials and open the first in JupyterLab, until it is stopped.

    Args:
        folder: where the tutorials go.
        browser: whether to open a browser.
        port: where to listen, by default where there is room.

    Returns:
        JupyterLab's exit code.
    """
    copy_tutorials(folder)
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder.resolve()}"]
    command.append(f"--LabApp.default_url=/lab/tree/{FIRST}")
    if not browser:
        command.append("--no-browser")
    if port is not None:
        command.append(f"--ServerApp.port={port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    # The kernel is to be this environment's, also when it was not activated.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    if os.name == "posix":
        sys.stdout.flush()
        os.execve(sys.executable, command, environment)  # it takes our place, and gets our signals
    with subprocess.Popen(command, env=environment) as lab:
        while True:
            try:
                return lab.wait()
            except KeyboardInterrupt:
                # JupyterLab got the Ctrl-C too, and asks whether it is meant.
                continue
