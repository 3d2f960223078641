"""One database file: opened once, written by one thread, read by a few.

One writer, because DuckDB loses concurrent updates in silence in several situations. Everything queued is written in one
transaction, and what cannot be written fails alone. Readers have a cursor each: one connection used by two threads gives
one of them the other's rows.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import duckdb

from sagents_nb.errors import StoreClosed, StoreError, StoreLocked
from sagents_nb.store.lock import FileLock, locked
from sagents_nb.store.schema import SCHEMA_VERSION, create_tables

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds to wait for a file that another process holds: a restarting kernel's old process needs one or two."""

MAX_BATCH = 256
"""Writes that share a transaction. Nothing waits for more to come: that only makes a lone agent slower."""

IDLE = 1.0
"""Seconds without work after which the write-ahead log is folded into the file."""

CHECKPOINT_SIZE = 4 << 20
"""Bytes of write-ahead log that make that worth while; replaying 4 MB takes some 90 ms at the next start."""

READERS = 2

CONFIG: dict[str, Any] = {
    # A typo in a query must not hang on the network looking for an extension.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # The defaults are 80 % of the machine's memory and all its cores.
    "memory_limit": "1GB",
    "threads": "2",
    # An automatic checkpoint happens inside an innocent commit; ours happens when nobody waits.
    "checkpoint_threshold": "256MB",
}


class Transaction:
    """A transaction of the writer.

    Attributes:
        cursor: to read and change with; `flush` first what was only added.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self._added: dict[str, list[Sequence[Any]]] = {}
        self._appenders: dict[str, Any] = {}

    def add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows; they go to the table together with others of the transaction."""
        if rows:
            self._added.setdefault(table, []).extend(rows)

    def flush(self) -> None:
        """Send the added rows to their tables, so that the cursor sees them."""
        added, self._added = self._added, {}
        for table, rows in added.items():
            appender = self._appenders.get(table)
            if appender is None:
                appender = self._appenders[table] = self.cursor.appender(table)
            appender.append_rows(rows)
            appender.flush()

    def undo(self) -> None:
        """Forget what was added; a failed appender is of no more use."""
        self._added.clear()
        for appender in self._appenders.values():
            with contextlib.suppress(duckdb.Error):  # it has nothing left to lose
                appender.clear()
        self._appenders.clear()


class Keeper(Protocol):
    """Keeps in memory what the writer knows, in step with what is durable."""

    def finish(self, transaction: Transaction) -> None:
        """Write what the operations left for the end of the transaction."""

    def committed(self) -> None:
        """All of it is durable."""

    def undone(self) -> None:
        """Nothing of it happened."""


class _Write:
    __slots__ = ("done", "prepare", "prepared", "write")

    def __init__(self, prepare: Callable[[], Any], write: Callable[[Transaction, Any], Any]) -> None:
        self.prepare = prepare
        self.write = write
        self.prepared: Any = None
        self.done: Future[Any] = Future()
        # Whoever waits may be cancelled; what was handed in is written all the same.
        self.done.set_running_or_notify_cancel()


class _Read(Generic[T]):
    def __init__(self, read: Callable[[duckdb.DuckDBPyConnection], T]) -> None:
        self.read = read
        self.done: Future[T] = Future()
        self._lock = threading.Lock()
        self._cursor: duckdb.DuckDBPyConnection | None = None

    def run(self, cursor: duckdb.DuckDBPyConnection) -> None:
        if not self.done.set_running_or_notify_cancel():
            return
        with self._lock:
            self._cursor = cursor
        try:
            result = in_snapshot(cursor, self.read)
        except BaseException as error:
            self._over()
            self.done.set_exception(error)
        else:
            self._over()
            self.done.set_result(result)

    def _over(self) -> None:
        with self._lock:
            self._cursor = None

    def interrupt(self) -> None:
        """Stop it, and no other that may have come after it on the same cursor."""
        self.done.cancel()
        with self._lock:
            if self._cursor is not None:
                self._cursor.interrupt()


def in_snapshot(cursor: duckdb.DuckDBPyConnection, read: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
    """Read in a read-only transaction that ends with the call: an open one would keep the log from being folded in."""
    cursor.execute("BEGIN TRANSACTION READ ONLY")
    try:
        return read(cursor)
    finally:
        with contextlib.suppress(duckdb.Error):  # it may have been ended by the error that is on its way
            cursor.rollback()


class Engine:
    """A database that is open.

    Args:
        path: the file, or None for one in memory.
        read_only: whether nothing may be written.
        keeper: told how each transaction ended.

    Raises:
        StoreError: it cannot be opened.
        StoreLocked: another process holds it.
    """

    def __init__(self, path: Path | None, *, keeper: Keeper, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self.name = str(path) if path is not None else "in memory"
        self.closed = False
        self.checkpoints = 0
        self._pid = os.getpid()
        self._keeper = keeper
        self._lock = FileLock(path) if path is not None and not read_only else None
        self._gate = threading.Lock()
        self._connection = self._open()
        try:
            self._prepare()
            cursors = [self._connection.cursor() for _ in range(READERS + 1)]
            for cursor in cursors:
                # Not inherited; the progress bar would put a widget into the running cell.
                cursor.execute("SET enable_progress_bar = false")
            # Last: neither can be taken back. A query reaches no file and no network, whatever it calls; the database's
            # own file, its log and its temporary folder are not concerned.
            self._connection.execute("SET GLOBAL python_enable_replacements = false")
            self._connection.execute("SET GLOBAL enable_external_access = false")
            self._connection.execute("SET GLOBAL lock_configuration = true")
        except BaseException:
            self._connection.close()
            if self._lock is not None:
                self._lock.release()
            raise
        self.inode = _inode(path)
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[_Read[Any] | None] = queue.SimpleQueue()
        self._reading: set[_Read[Any]] = set()
        self._cursors = threading.local()
        self._threads = [
            threading.Thread(target=self._serve_writes, args=(cursors[0],), name="sagents-store-writer", daemon=True)
        ]
        self._threads += [
            threading.Thread(target=self._serve_reads, args=(cursor,), name=f"sagents-store-reader_{n}", daemon=True)
            for n, cursor in enumerate(cursors[1:], 1)
        ]
        for thread in self._threads:
            thread.start()

    # Opening.

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self.path is None:
            return duckdb.connect(":memory:", config={**CONFIG, "temp_directory": ""})
        _check_path(self.path, writing=not self.read_only)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._lock is not None:
                    self._lock.acquire()
                if self._lock is not None and self.path.exists() and self.path.stat().st_size == 0:
                    self.path.unlink()  # made by touch or tempfile; DuckDB wants to make it itself
                return duckdb.connect(str(self.path), config=CONFIG)
            except StoreLocked:
                if time.monotonic() > deadline:
                    raise
            except duckdb.Error as error:
                if self._lock is not None:
                    self._lock.release()
                if "Could not set lock" not in str(error):
                    raise not_opened(self.path, error) from error
                if time.monotonic() > deadline:
                    found = re.search(r"PID (\d+)", str(error))
                    raise locked(self.path, int(found.group(1)) if found else None) from error
            time.sleep(0.1)

    def _prepare(self) -> None:
        tables = {row[0] for row in self._connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        if tables and not tables >= {"meta", "state_log"}:
            raise self._foreign(tables)
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        self._connection.execute("SET enable_progress_bar = false")
        if tables:
            version = self._version()
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} has the schema version {version}, newer than the {SCHEMA_VERSION} this sagents_nb "
                    "knows: pip install --upgrade sagents-nb"
                )
            if version < SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} was written by a sagents_nb from before its first release (tables of version {version}, "
                    f"now {SCHEMA_VERSION}); move it away and begin a new one"
                )
            return
        if self.read_only:
            raise StoreError(f"{self.path} is an empty DuckDB file; there is nothing to look at")
        self._connection.begin()
        self._connection.execute("CREATE TABLE meta (key VARCHAR NOT NULL, value VARCHAR NOT NULL)")
        for statement in create_tables():
            self._connection.execute(statement)
        self._connection.execute(
            "INSERT INTO meta VALUES ('schema_version', ?), ('made_with', ?)",
            [str(SCHEMA_VERSION), f"duckdb {duckdb.__version__}"],
        )
        self._connection.commit()

    def _version(self) -> int:
        try:
            row = self._connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
            return int(row[0] if row else "")
        except (duckdb.Error, ValueError) as error:
            raise self._foreign({"meta", "state_log"}) from error

    def _foreign(self, tables: set[str]) -> StoreError:
        return StoreError(
            f"{self.path} is a DuckDB file of something else (it has the tables {', '.join(sorted(tables)[:5])}); "
            "give Store a path of its own, for example 'agents.duckdb'"
        )

    # Writing.

    def write(self, write: Callable[[Transaction, T], Any], prepare: Callable[[], T]) -> Future[Any]:
        """Have something written.

        Args:
            write: given the transaction and what `prepare` made; run again by itself when another operation of the same
                transaction fails.
            prepare: what needs no database, such as encoding. When it fails nothing else is concerned.

        Returns:
            Future of what `write` gave, once it is durable.
        """
        operation = _Write(prepare, write)
        with self._gate:
            self.check()
            if self.read_only:
                raise StoreError(f"{self.name} is a read-only copy; open the file itself with Store(…) to write")
            self._writes.put(operation)
        return operation.done

    def _serve_writes(self, cursor: duckdb.DuckDBPyConnection) -> None:
        transaction = Transaction(cursor)
        unfolded = self.path is not None
        going = True
        while going:
            try:
                first = self._writes.get(timeout=IDLE if unfolded else None)
            except queue.Empty:
                unfolded = self._fold(cursor)
                continue
            batch: list[_Write] = []
            while True:
                if first is None:
                    going = False
                    break
                batch.append(first)
                if len(batch) == MAX_BATCH:
                    break
                try:
                    first = self._writes.get_nowait()
                except queue.Empty:
                    break
            ready = [operation for operation in batch if self._prepared(operation)]
            if ready:
                self._commit(transaction, ready)
                unfolded = self.path is not None
            # Kept until the next one comes, they would keep the States in them alive.
            first = None
            batch.clear()
            ready.clear()
        transaction.undo()
        cursor.close()

    def _prepared(self, operation: _Write) -> bool:
        try:
            operation.prepared = operation.prepare()
        except Exception as error:
            operation.done.set_exception(error)
            return False
        return True

    def _commit(self, transaction: Transaction, batch: list[_Write]) -> None:
        try:
            transaction.cursor.begin()
            results = [operation.write(transaction, operation.prepared) for operation in batch]
            self._keeper.finish(transaction)
            transaction.flush()
            transaction.cursor.commit()
        except BaseException as error:
            # Always: COMMIT after an error would report success and discard everything.
            with contextlib.suppress(duckdb.Error):  # a failed COMMIT has ended it already
                transaction.cursor.rollback()
            transaction.undo()
            self._keeper.undone()
            if len(batch) > 1:  # the one that cannot be written fails, the others are written one by one
                for operation in batch:
                    self._commit(transaction, [operation])
            else:
                batch[0].done.set_exception(self._readable(error, "could not be written"))
            return
        self._keeper.committed()
        for operation, result in zip(batch, results, strict=True):
            operation.done.set_result(result)

    def _fold(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Fold the log into the file if it is worth while; gives whether to try again later."""
        try:
            # Asks about the files, does not open them.
            size = Path(f"{self.path}.wal").stat().st_size
            free = shutil.disk_usage(Path(f"{self.path}").parent).free
        except OSError:
            return False
        if size < CHECKPOINT_SIZE:
            return False
        if free < 4 * size + (64 << 20):
            return False  # one that runs out of disk makes the database unusable until it is opened again
        try:
            cursor.execute("CHECKPOINT").fetchall()
        except duckdb.TransactionException:
            return True  # somebody reads
        except duckdb.Error:
            return False  # every later write says what is wrong
        self.checkpoints += 1
        return False

    # Reading.

    def submit(self, read: Callable[[duckdb.DuckDBPyConnection], T]) -> Future[T]:
        """Read something on a reader's thread, in a read-only transaction."""
        return self._submit(read).done

    def run(self, read: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """`submit`, and wait for it. Ctrl-C in the main thread stops the query."""
        own = getattr(self._cursors, "cursor", None)
        if own is not None:  # called back on a reader's own thread, which cannot wait for itself
            self.check()
            return self._translated(lambda: read(own))
        job = self._submit(read)
        try:
            # In short waits: on Windows a wait without an end does not notice Ctrl-C.
            while not concurrent.futures.wait([job.done], 0.5).done:
                pass
        except KeyboardInterrupt:
            # Again and again: one that comes while the query is not yet running goes by.
            while not job.done.done():
                job.interrupt()
                concurrent.futures.wait([job.done], 0.05)
            raise
        return self._translated(job.done.result)

    def _translated(self, get: Callable[[], T]) -> T:
        try:
            return get()
        except (duckdb.Error, RuntimeError) as error:
            if isinstance(error, duckdb.InterruptException) and self.closed:
                raise self._closed_error() from error
            raise self._readable(error, "could not be read") from error

    def _submit(self, read: Callable[[duckdb.DuckDBPyConnection], T]) -> _Read[T]:
        job = _Read(read)
        with self._gate:
            self.check()
            self._reads.put(job)
        return job

    def _serve_reads(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursors.cursor = cursor
        while (job := self._reads.get()) is not None:
            if self.closed:
                if job.done.set_running_or_notify_cancel():
                    job.done.set_exception(self._closed_error())
                continue
            self._reading.add(job)
            job.run(cursor)
            self._reading.discard(job)
            del job
        cursor.close()

    # Closing.

    def check(self) -> None:
        """Refuse what comes too late or from another process.

        Raises:
            StoreClosed: it was closed.
            StoreError: this is a fork of the process that opened it.
        """
        if self.closed:
            raise self._closed_error()
        if os.getpid() != self._pid:
            raise StoreError(
                f"the store {self.name} belongs to process {self._pid}, and this is a fork of it, process {os.getpid()}: "
                "two processes cannot use one DuckDB file. Use it in the parent only, or another file here"
            )

    def _closed_error(self) -> StoreClosed:
        again = "Store.memory() makes another" if self.path is None else f"open it again with Store('{self.path}')"
        return StoreClosed(f"the store {self.name} was closed; {again}")

    def _readable(self, error: BaseException, what: str) -> BaseException:
        if not isinstance(error, duckdb.Error):
            return error
        words = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if isinstance(error, duckdb.FatalException):
            readable = StoreError(
                f"the store {self.name} {what}: DuckDB has given the database up ({words}). What was saved is safe. "
                "See that there is room on the disk, then store.close() and open it again"
            )
        elif "No space left" in words or "File too large" in words:
            readable = StoreError(
                f"the store {self.name} {what}: the disk is full ({words}). Nothing saved before is lost; make room and "
                "save again"
            )
        else:
            readable = StoreError(f"the store {self.name} {what}: {words}")
        readable.__cause__ = error
        return readable

    def close(self) -> None:
        """Write what waits, stop what reads, fold the log into the file, let go of it."""
        if os.getpid() != self._pid:
            return
        with self._gate:
            if self.closed:
                return
            self.closed = True
            self._writes.put(None)
            for _ in range(READERS):
                self._reads.put(None)
        if threading.current_thread() in self._threads:  # it cannot wait for itself
            threading.Thread(target=self._end, name="sagents-store-closer").start()
        else:
            self._end()

    def _end(self) -> None:
        for thread in self._threads:
            while thread.is_alive():
                for job in list(self._reading):  # again and again, as in `run`
                    job.interrupt()
                thread.join(0.05)
        if self.path is not None and not self.read_only:
            with contextlib.suppress(duckdb.Error):  # the log is replayed at the next start
                self._connection.execute("CHECKPOINT").fetchall()
        with contextlib.suppress(duckdb.Error):  # one that DuckDB has given up closes with that error
            self._connection.close()
        if self._lock is not None:
            self._lock.release()


def _inode(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def is_replaced(engine: Engine) -> bool:
    """Whether another file, or none, lies where the database was opened: then what is written is lost."""
    return _inode(engine.path) != engine.inode


def _check_path(path: Path, *, writing: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder; a store is a file: Store('{path}/agents.duckdb')")
    if not path.parent.is_dir():
        raise StoreError(
            f"the folder {path.parent} does not exist; make it first: Path('{path.parent}').mkdir(parents=True)"
        )
    if not path.exists():
        if not os.access(path.parent, os.W_OK):
            raise StoreError(f"the folder {path.parent} cannot be written to; choose another path")
    elif not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be read: its permissions do not allow it")
    elif writing and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise StoreError(
            f"{path} or its folder is write-protected; to look without changing anything: Store.snapshot('{path}')"
        )


def not_opened(path: Path, error: Exception) -> StoreError:
    """Why DuckDB did not open a file, in words."""
    text = str(error)
    first = text.splitlines()[0] if text else type(error).__name__
    if "not a valid DuckDB database" in text:
        return StoreError(
            f"{path} is no DuckDB file; give Store another path, for example 'agents.duckdb'. The file was left as it is"
        )
    if "version number" in text:
        return StoreError(
            f"{path} was written by a newer DuckDB than this {duckdb.__version__}: "
            f"pip install --upgrade duckdb sagents-nb ({first})"
        )
    if "different configuration" in text:
        return StoreError(
            f"{path} is open in this process through duckdb.connect; close that connection first, and read with "
            "store.sql(…) instead"
        )
    if "orrupt" in text:
        return StoreError(f"{path} is damaged: {first}. Go back to a copy of it, or begin a new file")
    return StoreError(f"{path} cannot be opened: {first}")
