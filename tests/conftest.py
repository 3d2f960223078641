"""Two guards around every test: nothing reaches the network, and no thread that would hold up the exit is left."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

_attempts: list[str] = []


class NetworkUsedError(RuntimeError):
    """A test wanted to leave this machine. No OSError: code under test would take it for a bad connection and retry."""


def _is_local(host: Any) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    if not host or host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name, which a resolver elsewhere would have to know
    return address.is_loopback or address.is_unspecified


def _refuse(host: Any) -> None:
    _attempts.append(str(host))
    raise NetworkUsedError(
        f"a test wanted to reach {host!r}; tests reach this machine only: use ScriptedModel or a server on 127.0.0.1"
    )


def _guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
            _refuse(address[0])
        return connect(self, address)

    return guarded


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        if not _is_local(host):
            _refuse(host)
        return resolve(host, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _guarded(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", _guarded(socket.socket.connect_ex))
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield


@pytest.fixture(autouse=True)
def network_attempts() -> Iterator[list[str]]:
    """Hosts that the test wanted to reach. It fails for them even where the code under test caught the error."""
    _attempts.clear()
    yield _attempts
    assert not _attempts, f"the test wanted to reach {', '.join(_attempts)}"


_before = pytest.StashKey[set[threading.Thread]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_before] = set(threading.enumerate())  # after the fixtures, which may live longer than the test
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    before = item.stash.get(_before, set(threading.enumerate()))
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in left:
        thread.join(2)  # one that is about to end is none that was left
    # Playwright's event loop serves all browser tests, and so does the pool of threads it makes when one needs it.
    names = [
        thread.name
        for thread in left
        if thread.is_alive() and not (item.get_closest_marker("browser") and thread.name.startswith("asyncio_"))
    ]
    if names:
        pytest.fail(f"the test left threads behind that hold up the exit: {', '.join(names)}", pytrace=False)
    return result
