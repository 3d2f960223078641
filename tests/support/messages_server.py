"""A Messages API server on this machine's loopback, for tests and notebooks without a key.

It speaks real HTTP and real server-sent events, so what is tested is the whole way: the adapter,
the SDK, the HTTP client and the socket. It plays a script, refuses what the API would refuse, and
writes down what it was asked.

    with MessagesServer([
        reply(tool_use("get_weather", {"city": "Oslo"})),
        http_error(429, retry_after=0.05),
        drop(after=text("It is col")),
        reply(text("It is cold.")),
    ]) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="test", max_retries=0)
        ...
        server.requests[0].body["messages"]

Three files, one idea each: `messages_script` (turns as data), `messages_rules` (what is refused),
and this one (HTTP). Import everything from here.
"""

import contextlib
import json
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, TypeAlias

from .messages_rules import problems
from .messages_script import (
    STATUS_OF_ERROR,
    Drop,
    Finish,
    HangUp,
    HttpError,
    Json,
    Reply,
    Stall,
    StreamError,
    Turn,
    drop,
    error_body,
    events,
    hang_up,
    http_error,
    message,
    redacted_thinking,
    refusal,
    reply,
    sse,
    stall,
    stream_error,
    text,
    thinking,
    tool_use,
)

__all__ = [
    "Disconnect",
    "MessagesServer",
    "RecordedRequest",
    "Turn",
    "drop",
    "hang_up",
    "http_error",
    "redacted_thinking",
    "refusal",
    "reply",
    "stall",
    "stream_error",
    "text",
    "thinking",
    "tool_use",
]

KEY_HEADERS = ("x-api-key", "authorization")
HALF_AN_EVENT = b'event: content_block_delta\ndata: {"type": "content_bl'
BEAT = 0.01  # seconds between two looks at a client that may have left


@dataclass(frozen=True)
class RecordedRequest:
    """One request as it came.

    The API key is not kept: its header reads "[redacted]". To test that the right key arrives, give
    it to `MessagesServer(api_key=...)`, which answers 401 to any other.
    """

    index: int
    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: Any
    """The JSON body, or None when it was not JSON."""
    problem: str | None = None
    """Why it was refused with a 400, if it was."""


@dataclass(frozen=True)
class Disconnect:
    """A client that left before its answer was whole."""

    request: int
    """Index into `MessagesServer.requests`."""
    events: tuple[str, ...]
    """The types of the events sent to it before."""


Script: TypeAlias = Sequence[Turn] | Callable[[RecordedRequest], Turn]


@dataclass
class MessagesServer:
    """A server that plays `script`; a context manager, or `start()` and `stop()` in a notebook.

    Attributes:
        script: The turns, one per accepted request in order of arrival; or a function from the
            request to its turn, for clients that run side by side.
        api_key: The only key accepted; by default any.
        strict: Whether requests are checked as the API checks them.
        requests: Every POST that came, refused ones too.
        disconnects: Every client that left early.
    """

    script: Script = ()
    api_key: str | None = field(default=None, repr=False)
    strict: bool = True
    requests: list[RecordedRequest] = field(default_factory=list, init=False)
    disconnects: list[Disconnect] = field(default_factory=list, init=False)
    _played: int = field(default=0, init=False, repr=False)
    _failures: list[BaseException] = field(default_factory=list, init=False, repr=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)
    _closing: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _http: "_HttpServer | None" = field(default=None, init=False, repr=False)

    # -- living -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Listens on a free port of 127.0.0.1, in a daemon thread."""
        if self._http is not None:
            raise RuntimeError("this MessagesServer already runs; make a second one")
        self._closing.clear()
        self._http = _HttpServer(self)
        threading.Thread(target=self._http.serve_forever, args=(BEAT,), name="messages-server", daemon=True).start()
        return self

    def stop(self) -> None:
        """Stops at once: stalled answers end, open connections are closed."""
        if self._http is None:
            return
        self._closing.set()
        self._http.shutdown()
        self._http.close_connections()
        self._http.server_close()
        self._http = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._failures and error is None:
            raise RuntimeError("the MessagesServer itself failed; see the cause") from self._failures[0]

    @property
    def url(self) -> str:
        """What to give to the client as `base_url`."""
        if self._http is None:
            raise RuntimeError("this MessagesServer does not run: use it in `with`, or call .start()")
        return f"http://127.0.0.1:{self._http.server_port}"

    # -- the script ---------------------------------------------------------------------------

    @property
    def remaining(self) -> int:
        """How many turns of the script nobody has asked for yet."""
        return 0 if callable(self.script) else len(self.script) - self._played

    def wait_for_disconnects(self, count: int = 1, timeout: float = 5.0) -> list[Disconnect]:
        """Blocks until so many clients have left; `TimeoutError` after `timeout` seconds.

        In a coroutine, await `asyncio.to_thread(server.wait_for_disconnects)`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.disconnects) >= count, timeout):
                raise TimeoutError(f"{len(self.disconnects)} of {count} clients left within {timeout} s")
            return list(self.disconnects)

    def wait_for_requests(self, count: int = 1, timeout: float = 5.0) -> list[RecordedRequest]:
        """Blocks until so many requests have come; `TimeoutError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} of {count} requests came within {timeout} s")
            return list(self.requests)

    def _answer(self, path: str, headers: dict[str, str], raw: bytes) -> tuple[RecordedRequest, Turn]:
        """Records a request and chooses its turn."""
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        keys = {headers.get("x-api-key", ""), bearer} - {""}
        safe = {name: "[redacted]" if name in KEY_HEADERS else value for name, value in headers.items()}
        body: Any = None
        problem: str | None
        try:
            body = json.loads(raw)
            problem = next(problems(body), None) if self.strict else None
        except json.JSONDecodeError as error:
            problem = f"The request body is not valid JSON: {error}"
        with self._changed:
            request = RecordedRequest(len(self.requests), path, safe, body, problem)
            self.requests.append(request)
            turn = self._refusal(request, keys) or self._next_of_script()
            self._changed.notify_all()
        return request, turn or self.script(request)  # type: ignore[operator]

    def _refusal(self, request: RecordedRequest, keys: set[str]) -> HttpError | None:
        """What the API says before it thinks."""
        final = {"x-should-retry": "false"}  # a header of the API, which the SDK obeys
        if request.path.partition("?")[0] != "/v1/messages":
            return http_error(404, headers=final)
        if not keys:
            return http_error(401, "x-api-key header is required", headers=final)
        if self.api_key is not None and self.api_key not in keys:
            return http_error(401, headers=final)
        if "anthropic-version" not in request.headers:
            return http_error(400, "anthropic-version: header is required", headers=final)
        if request.problem is not None:
            return http_error(400, request.problem, headers=final)
        return None

    def _next_of_script(self) -> Turn | None:
        """The next turn of a list; None when the script is a function."""
        if callable(self.script):
            return None
        if self._played >= len(self.script):
            words = (
                f"MessagesServer: the script has {len(self.script)} turns and this request asks "
                "for one more; add a reply(...) to it"
            )
            return http_error(500, words, headers={"x-should-retry": "false"})
        self._played += 1
        return self.script[self._played - 1]

    def _left(self, request: RecordedRequest, sent: Sequence[str]) -> None:
        with self._changed:
            self.disconnects.append(Disconnect(request.index, tuple(sent)))
            self._changed.notify_all()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, owner: MessagesServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own also asks the resolver for the host's name: a hang without network.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Wakes the threads that wait for a client's next request."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # its client may have been faster
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            self.owner._failures.append(error)


class _ClientLeftError(Exception):
    """The client closed its connection, or the server is stopping."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else events wait for the acknowledgement of the one before
    server: _HttpServer

    def do_POST(self) -> None:
        owner = self.server.owner
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        request, turn = owner._answer(self.path, {k.lower(): v for k, v in self.headers.items()}, raw)
        self.message_id = f"msg_{request.index:04d}"
        self.request_id = f"req_{request.index:04d}"
        self.sent: list[str] = []
        try:
            self._play(turn, request)
        except (_ClientLeftError, ConnectionError):
            self.close_connection = True
            whole = self.sent[-1:] == ["message_stop"]
            if not whole and not owner._closing.is_set():
                owner._left(request, self.sent)

    def _play(self, turn: Turn, request: RecordedRequest) -> None:
        match turn:
            case HangUp(how):
                self._hang_up(reset=how == "reset")
            case HttpError(status, body, headers):
                kind = "application/json" if body.startswith("{") else "text/html"
                self._send_whole(status, body.encode(), {"content-type": kind, **headers})
            case Reply():
                turn = self._with_ids(turn, request)
                if turn.gate is not None:
                    self._wait(None, turn.gate)
                asked: Json = request.body if isinstance(request.body, dict) else {}
                model = asked.get("model", "unknown")
                if asked.get("stream"):
                    self._stream(turn, model)
                else:
                    self._send_at_once(turn, model)

    @staticmethod
    def _with_ids(turn: Reply, request: RecordedRequest) -> Reply:
        if turn.blocks is None:
            return turn
        blocks = (b.with_default_id(f"toolu_{request.index:04d}_{i}") for i, b in enumerate(turn.blocks))
        return replace(turn, blocks=tuple(blocks))

    # -- the two kinds of answer --------------------------------------------------------------

    def _stream(self, turn: Reply, model: str) -> None:
        self._send_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for event in events(turn, message_id=self.message_id, model=model):
            self._wait(turn.delay)
            self._send_chunk(sse(event), turn.write_size)
            self.sent.append(event["type"])
        match turn.ending:
            case StreamError(kind, words):
                self._send_chunk(sse(error_body(kind, words)), turn.write_size)
                self.sent.append("error")
            case Stall(seconds):
                self._wait(seconds, threading.Event())
                self._hang_up()
                return
            case Drop(how, mid_line):
                if mid_line:
                    self._send_chunk(HALF_AN_EVENT, None)
                if how != "end":
                    self._hang_up(reset=how == "reset")
                    return
            case Finish():
                pass
        self.wfile.write(b"0\r\n\r\n")

    def _send_at_once(self, turn: Reply, model: str) -> None:
        match turn.ending:
            case StreamError(kind, words):
                body = json.dumps(error_body(kind, words)).encode()
                self._send_whole(STATUS_OF_ERROR.get(kind, 500), body, {"content-type": "application/json"})
            case Stall(seconds):
                self._wait(seconds, threading.Event())
                self._hang_up()
            case Drop(how):
                self._send_head(200, {"content-type": "application/json", "content-length": "1000"})
                self.wfile.write(b'{"id": "msg_')
                self._hang_up(reset=how == "reset")
            case Finish():
                self._wait(turn.delay)
                body = json.dumps(message(turn, message_id=self.message_id, model=model)).encode()
                self._send_whole(200, body, {"content-type": "application/json"})

    # -- bytes --------------------------------------------------------------------------------

    def _send_head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"request-id": self.request_id, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_whole(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._send_head(status, {"content-length": str(len(body)), **headers})
        self.wfile.write(body)

    def _send_chunk(self, data: bytes, write_size: int | None) -> None:
        size = write_size or len(data)
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _hang_up(self, *, reset: bool = False) -> None:
        self.close_connection = True
        if reset:  # a zero linger makes close() send RST instead of FIN
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()

    def _wait(self, seconds: float | None, until: threading.Event | None = None) -> None:
        """Waits for `until` or so long, looking after the client meanwhile.

        Raises:
            _ClientLeftError: It closed the connection, or the server is stopping.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            self._look_after_client()
            if until is not None and until.is_set():
                return
            rest = BEAT if end is None else min(BEAT, end - time.monotonic())
            if rest <= 0:
                return
            time.sleep(rest)

    def _look_after_client(self) -> None:
        if self.server.owner._closing.is_set():
            raise _ClientLeftError
        self.connection.settimeout(0)
        try:
            if self.connection.recv(1, socket.MSG_PEEK) == b"":
                raise _ClientLeftError
        except BlockingIOError:  # it waits in silence, as it should
            pass
        finally:
            self.connection.settimeout(None)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a notebook's output belongs to its author."""
