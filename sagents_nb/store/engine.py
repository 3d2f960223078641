"""One database file: opened once, written by one thread, read by a few.

One writer, because DuckDB loses concurrent updates in silence in several situations; everything queued is written in one
transaction, and what cannot be written fails alone.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from sagents_nb.errors import StoreClosed, StoreError, StoreLocked
from sagents_nb.store.lock import FileLock, describe_process
from sagents_nb.store.schema import SCHEMA_VERSION, TABLES

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds to wait for a file that another process holds: a restarting kernel's old process needs one or two."""

MAX_BATCH = 256
"""Writes that share a transaction."""

IDLE = 1.0
"""Seconds without work after which the write-ahead log is folded into the file."""

CHECKPOINT_SIZE = 4 << 20
"""Bytes of write-ahead log that make that worth while; replaying 4 MB takes some 90 ms at the next start."""

_CONFIG: dict[str, Any] = {
    # A typo in a query must not hang on the network looking for an extension.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "1GB",
    "threads": "2",
    # An automatic checkpoint happens inside an innocent commit; ours happens when nobody waits.
    "checkpoint_threshold": "256MB",
}

Write = Callable[[duckdb.DuckDBPyConnection], T]


@dataclass(slots=True)
class _Op:
    write: Write[Any]
    done: Future[Any]


class Engine:
    """A database that is open.

    Args:
        path: the file, or None for one in memory.
        read_only: whether nothing may be written.
        on_commit: called on the writer's thread after every commit.
        on_rollback: called on the writer's thread when a transaction was undone.

    Raises:
        StoreError: it cannot be opened.
        StoreLocked: another process holds it.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        read_only: bool = False,
        on_commit: Callable[[], object] = lambda: None,
        on_rollback: Callable[[], object] = lambda: None,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.name = str(path) if path is not None else ":memory:"
        self._pid = os.getpid()
        self._on_commit = on_commit
        self._on_rollback = on_rollback
        self._lock = FileLock(path) if path is not None and not read_only else None
        self._connection = self._open()
        try:
            self._prepare()
        except BaseException as error:
            self._connection.close()
            if self._lock is not None:
                self._lock.release()
            raise self._not_opened(error) if isinstance(error, duckdb.Error) else error from None
        self._queue: queue.SimpleQueue[_Op | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="sagents-store-reader")
        self._local = threading.local()
        self._writer = threading.Thread(target=self._serve, name="sagents-store-writer", daemon=True)
        self._writer.start()

    # Opening.

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self.path is None:
            return duckdb.connect(":memory:", config=_CONFIG)
        self._check_path(self.path)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._lock is not None:
                    self._lock.acquire()
                return duckdb.connect(str(self.path), read_only=self.read_only, config=_CONFIG)
            except StoreLocked:
                if time.monotonic() > deadline:
                    raise
            except OSError as error:  # of the file of the lock
                raise self._not_opened(error) from error
            except duckdb.Error as error:
                if self._lock is not None:
                    self._lock.release()
                if "Could not set lock" not in str(error):
                    raise self._not_opened(error) from error
                if time.monotonic() > deadline:
                    found = re.search(r"PID (\d+)", str(error))
                    raise locked(self.path, int(found.group(1)) if found else None) from error
            time.sleep(0.1)

    def _check_path(self, path: Path) -> None:
        if path.is_dir():
            raise StoreError(f"{path} is a folder; a store is a file: Store('{path}/agents.duckdb')")
        if not path.parent.is_dir():
            raise StoreError(f"the folder {path.parent} does not exist; make it first, or choose another path")
        if not path.exists() and not os.access(path.parent, os.W_OK):
            raise StoreError(f"the folder {path.parent} cannot be written to; choose another path")
        if path.exists() and not os.access(path, os.R_OK):
            raise StoreError(f"{path} cannot be read: its permissions do not allow it")
        if path.exists() and not self.read_only and not os.access(path, os.W_OK):
            raise StoreError(f"{path} is write-protected; Store.snapshot('{path}') opens a read-only copy")

    def _not_opened(self, error: Exception) -> StoreError:
        text = str(error)
        if "not a valid DuckDB database" in text or "is not a database" in text.lower():
            return StoreError(
                f"{self.path} is no DuckDB file; give Store another path, for example 'agents.duckdb'. "
                "The file was left as it is"
            )
        if "version number" in text:
            return StoreError(
                f"{self.path} was written by a newer DuckDB than this {duckdb.__version__}: "
                f"pip install --upgrade duckdb sagents-nb ({text.splitlines()[0]})"
            )
        return StoreError(f"{self.path} cannot be opened: {text}")

    def _prepare(self) -> None:
        tables = {row[0] for row in self._connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        if tables and not tables >= {"meta", "state_log"}:
            raise self._foreign(tables)
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        self._connection.execute("SET enable_progress_bar = false")
        if "meta" in tables:
            version = self._version()
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} has the schema version {version}, newer than the {SCHEMA_VERSION} this sagents_nb "
                    "knows: pip install --upgrade sagents-nb"
                )
        if self.read_only:
            return
        self._connection.begin()
        for statement in self._connection.extract_statements(TABLES):
            self._connection.execute(statement)
        if "meta" not in tables:
            self._connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", [str(SCHEMA_VERSION)])
        self._connection.commit()

    def _version(self) -> int:
        try:
            row = self._connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
            return int(row[0] if row else "")
        except (duckdb.Error, ValueError):
            raise self._foreign({"meta"}) from None

    def _foreign(self, tables: set[str]) -> StoreError:
        return StoreError(
            f"{self.path} is a DuckDB file of something else (it has the tables {', '.join(sorted(tables)[:5])}); "
            "give Store a path of its own"
        )

    # Writing.

    def write(self, write: Write[T]) -> Future[T]:
        """Have something written in a transaction; the future holds its result once it is durable."""
        self._check_open()
        if self.read_only:
            raise StoreError(f"{self.name} is a read-only copy; open the file itself with Store(…) to write")
        done: Future[T] = Future()
        # Whoever waits may be cancelled; what was handed in is written all the same.
        done.set_running_or_notify_cancel()
        with self._closing:
            self._check_open()
            self._queue.put(_Op(write, done))
        return done

    def _serve(self) -> None:
        cursor = self._cursor()
        stop = False
        while not stop:
            try:
                first = self._queue.get(timeout=IDLE)
            except queue.Empty:
                self._checkpoint(cursor)
                continue
            if first is None:
                break
            batch = [first]
            while len(batch) < MAX_BATCH:
                try:
                    op = self._queue.get_nowait()
                except queue.Empty:
                    break
                if op is None:
                    stop = True
                    break
                batch.append(op)
            self._commit(cursor, batch)
        cursor.close()

    def _commit(self, cursor: duckdb.DuckDBPyConnection, batch: list[_Op]) -> None:
        try:
            cursor.begin()
            results = [op.write(cursor) for op in batch]
            cursor.commit()
        except BaseException as error:  # handed to whoever waits
            # COMMIT after an error would report success and discard everything.
            with contextlib.suppress(duckdb.Error):
                cursor.rollback()
            self._on_rollback()
            if len(batch) > 1:
                for op in batch:
                    self._commit(cursor, [op])
            else:
                batch[0].done.set_exception(_readable(error, self.name))
            return
        self._on_commit()
        for op, result in zip(batch, results, strict=True):
            op.done.set_result(result)

    def _checkpoint(self, cursor: duckdb.DuckDBPyConnection) -> None:
        if self.path is None:
            return
        try:
            size = Path(f"{self.path}.wal").stat().st_size  # asks about the file, does not open it
        except OSError:
            return
        if size >= CHECKPOINT_SIZE:
            with contextlib.suppress(duckdb.Error):  # somebody reads, or the disk is full; next time
                cursor.execute("CHECKPOINT")

    # Reading.

    def read(self, read: Callable[[duckdb.DuckDBPyConnection], T]) -> Future[T]:
        """Run something on a reader's cursor, in a reader's thread."""
        self._check_open()
        with self._closing:
            self._check_open()
            return self._readers.submit(self._with_cursor, read)

    def _with_cursor(self, read: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        cursor = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._cursor()
        return read(cursor)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = self._connection.cursor()
        # Neither is inherited; the progress bar would put a widget into the running cell.
        cursor.execute("SET TimeZone = 'UTC'")
        cursor.execute("SET enable_progress_bar = false")
        return cursor

    @contextlib.contextmanager
    def own_cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for one caller, who may interrupt it."""
        self._check_open()
        cursor = self._cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    # Closing.

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store {self.name} was closed; open it again with Store({self.name!r})")
        if os.getpid() != self._pid:
            raise StoreError(
                f"the store {self.name} belongs to process {self._pid}; this is a fork of it: open another"
            )

    def close(self) -> None:
        """Write what waits, fold the log into the file, let go of it."""
        with self._closing:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            self._queue.put(None)
        self._writer.join()
        self._readers.shutdown()
        if not self.read_only:
            with contextlib.suppress(duckdb.Error):  # the log is replayed at the next start
                self._connection.execute("CHECKPOINT")
        self._connection.close()
        if self._lock is not None:
            self._lock.release()


def locked(path: Path, pid: int | None) -> StoreLocked:
    """The error for a file that another process holds."""
    holder = f"another process holds it ({describe_process(pid)})" if pid else "another process holds it"
    return StoreLocked(
        f"{path} cannot be opened: {holder}, and a DuckDB file belongs to one process at a time. Shut that kernel down, "
        f"use another file, or look at a read-only copy: Store.snapshot('{path}')",
        pid=pid,
    )


def _readable(error: BaseException, name: str) -> BaseException:
    # A ValueError or TypeError is of JSON: a value that is none.
    if isinstance(error, (duckdb.Error, ValueError, TypeError)):
        readable = StoreError(f"{name} could not be written: {error}")
        readable.__cause__ = error
        return readable
    return error
