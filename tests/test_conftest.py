"""The guards around every test do guard."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("method", ["connect", "connect_ex"])
def test_a_connection_to_elsewhere_is_refused(method: str, network_attempts: list[str]) -> None:
    with socket.socket() as client, pytest.raises(RuntimeError, match="wanted to reach '192.0.2.1'"):
        getattr(client, method)(("192.0.2.1", 80))
    assert network_attempts == ["192.0.2.1"]
    network_attempts.clear()


def test_a_name_is_refused_before_it_is_looked_up(network_attempts: list[str]) -> None:
    with pytest.raises(RuntimeError, match="wanted to reach 'api.example'"):
        socket.create_connection(("api.example", 443))
    network_attempts.clear()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_may_be_reached(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection((host, server.getsockname()[1])).close()
        server.accept()[0].close()


LEAKS = """
import socket, threading
import pytest

def test_thread():
    threading.Thread(target=threading.Event().wait, args=(10,), name="lingering").start()

def test_caught():
    try:
        socket.create_connection(("api.example", 443))
    except Exception:
        pass

def test_daemon():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def test_a_test_that_leaves_a_thread_or_hides_an_attempt_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the test left threads behind that hold up the exit: lingering" in done.stdout
    assert "the test wanted to reach api.example" in done.stdout
    assert "3 passed, 2 errors" in done.stdout
