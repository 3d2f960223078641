"""A real JupyterLab on a free loopback port, in a real browser.

One server and one browser serve a whole test session: starting them takes some 15 seconds, a notebook one to three.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nbformat
from playwright.sync_api import Dialog, Page, sync_playwright

from tests.browser import chromium

SCREENSHOTS = Path(__file__).parent / "screenshots"

_NO_NEWS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}

# What runs in the page, where JupyterLab exposes itself as `jupyterapp`.
_KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel"
_CELL = "window.jupyterapp.shell.currentWidget.content.widgets[i]"


def write_notebook(path: Path, cells: Sequence[str]) -> Path:
    """A notebook with these code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, str(path))
    return path


class Lab:
    """JupyterLab and Chromium, as a context manager.

    Args:
        root: folder that JupyterLab serves.
        environment: additions to the kernels' environment.
    """

    def __init__(self, root: Path, environment: dict[str, str] | None = None) -> None:
        self.root = root.resolve()
        self.environment = environment or {}
        self.console: list[tuple[str, str]] = []
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._own = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True))
            )
            self._settings(_NO_NEWS)
            executable = chromium.find()  # may ask Playwright, which allows one of itself at a time
            stack.enter_context(self._server())
            playwright = stack.enter_context(sync_playwright())
            self._browser = playwright.chromium.launch_persistent_context(
                str(self._own / "profile"),
                executable_path=executable,
                headless=True,
                args=chromium.FLAGS,
                viewport={"width": 1440, "height": 1000},
            )
            stack.callback(self._browser.close)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, error, traceback)

    def _settings(self, settings: dict[str, dict[str, Any]]) -> None:
        for plugin, values in settings.items():
            package, name = plugin.split(":")
            file = self._own / "settings" / package / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))

    @contextlib.contextmanager
    def _server(self) -> Iterator[None]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }
        environment = {**os.environ, **{name: str(self._own / folder) for name, folder in folders.items()}}
        environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), **self.environment}
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            f"--ServerApp.root_dir={self.root}",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            "--IdentityProvider.token=",
            "--ServerApp.password=",
            "--ServerApp.disable_check_xsrf=True",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        self.url = f"http://127.0.0.1:{port}"
        log = self._own / "server.log"
        with log.open("w") as output:
            server = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
            try:
                self._wait_for(server, log)
                yield
            finally:
                server.send_signal(signal.SIGTERM)  # it ends its kernels first
                try:
                    server.wait(15)
                except subprocess.TimeoutExpired:
                    os.killpg(server.pid, signal.SIGKILL)
                    server.wait()

    def _wait_for(self, server: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if server.poll() is not None:
                break
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/api/status", timeout=2):
                return
            time.sleep(0.05)
        raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-4000:]}")

    # Pages.

    def open(self, notebook: Path) -> Page:
        """Open a notebook and wait until its kernel is idle."""
        page = self._browser.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: self.console.append((message.type, message.text)))
        page.on("pageerror", lambda error: self.console.append(("pageerror", str(error))))
        page.on("dialog", self._dismiss)
        page.goto(
            f"{self.url}/lab/tree/{notebook.resolve().relative_to(self.root)}?reset", wait_until="domcontentloaded"
        )
        self._wait_loaded(page)
        return page

    def _dismiss(self, dialog: Dialog) -> None:
        self.console.append(("dialog", dialog.message))
        dialog.dismiss()

    def reload(self, page: Page, *, kernel: bool = True) -> None:
        """Load the page again; a kernel that runs goes on.

        Args:
            page: which.
            kernel: whether to wait for one.
        """
        page.reload(wait_until="domcontentloaded")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        if kernel:
            self._wait_loaded(page)

    def _wait_loaded(self, page: Page) -> None:
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        page.wait_for_function(
            f"() => {{ const k = window.jupyterapp?.shell?.currentWidget && {_KERNEL};"
            " return k && k.connectionStatus === 'connected' && k.status !== 'unknown' && k.status !== 'starting' }",
            timeout=60_000,
        )

    def screenshot(self, page: Page, name: str) -> Path:
        """Keep a picture of the page."""
        SCREENSHOTS.mkdir(exist_ok=True)
        target = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=str(target))
        return target

    def theme(self, page: Page, *, dark: bool) -> None:
        """Switch JupyterLab's theme."""
        name = "JupyterLab Dark" if dark else "JupyterLab Light"
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name)
        light = "false" if dark else "true"
        page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)

    # Notebook and kernel.

    def run_all(self, page: Page) -> None:
        """Run all cells and wait for them."""
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.wait_idle(page)

    def run_all_but_last(self, page: Page, count: int) -> None:
        """Run all cells but the last ones and wait for them."""
        page.evaluate(
            "n => { const c = window.jupyterapp.shell.currentWidget.content;"
            " c.activeCellIndex = c.widgets.length - n; c.deselectAll();"
            " return window.jupyterapp.commands.execute('notebook:run-all-above') }",
            count,
        )
        self.wait_idle(page)

    def show(self, page: Page, index: int) -> None:
        """Scroll to a cell; JupyterLab puts only those near the visible part into the page."""
        page.evaluate("i => window.jupyterapp.shell.currentWidget.content.scrollToItem(i, 'start')", index)

    def start_cell(self, page: Page, index: int) -> None:
        """Run one cell, without waiting."""
        page.evaluate(
            "i => { const c = window.jupyterapp.shell.currentWidget.content; c.activeCellIndex = i; c.deselectAll();"
            " window.jupyterapp.commands.execute('notebook:run-cell') }",
            index,
        )

    def wait_idle(self, page: Page) -> None:
        """Wait until the kernel does nothing."""
        page.wait_for_function(f"() => {_KERNEL}?.status === 'idle'", timeout=60_000)

    def is_running(self, page: Page, index: int) -> bool:
        """Whether a cell runs. Not the kernel's status: it says idle when a click was handled beside the cell."""
        return str(page.evaluate(f"i => {_CELL}.node.querySelector('.jp-InputArea-prompt').innerText", index)) == "[*]:"

    def text(self, page: Page, index: int) -> str:
        """Visible text of a cell's output."""
        return str(page.evaluate(f"i => {_CELL}.node.querySelector('.jp-OutputArea')?.innerText || ''", index))

    def outputs(self, page: Page, index: int) -> list[dict[str, Any]]:
        """A cell's outputs as they would be saved."""
        return list(page.evaluate(f"i => {_CELL}.model.outputs.toJSON()", index))

    def execute(self, page: Page, code: str) -> str:
        """Run code in the notebook's kernel, outside its cells; what it printed or raised."""
        return str(
            page.evaluate(
                f"""async code => {{
                    let out = '';
                    const future = {_KERNEL}.requestExecute({{code, store_history: false}});
                    future.onIOPub = m => {{
                        if (m.header.msg_type === 'stream') out += m.content.text;
                        if (m.header.msg_type === 'execute_result') out += m.content.data['text/plain'];
                        if (m.header.msg_type === 'error') out += m.content.ename + ': ' + m.content.evalue;
                    }};
                    await future.done;
                    return out; }}""",
                code,
            )
        )

    def save(self, page: Page) -> None:
        """Save the notebook."""
        page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.context.save() }")

    def restart_kernel(self, page: Page) -> None:
        """Restart the kernel and wait until it is there again."""
        page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.restartKernel() }")
        self.wait_idle(page)

    def interrupt(self, page: Page) -> None:
        """Press the kernel's stop button."""
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:interrupt-kernel')")

    def copy_here(self, notebook: Path, name: str) -> Path:
        """A copy of a notebook in a folder of its own."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        return Path(shutil.copy(notebook, folder / notebook.name))
