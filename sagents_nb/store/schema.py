"""Tables and views of a database file.

Append-only where it can be: DuckDB rewrites a whole column of a row group when one value in it is updated. No foreign
keys (an update of a referenced row may fail) and no secondary indexes (a filter on owner and conversation never uses
one, and updates of indexed rows can lose a concurrent change). Rows come in time order, so zone maps find them. Every
table has the owner in it: half a key cannot be forgotten in a join.
"""

from __future__ import annotations

SCHEMA_VERSION = 2
"""Version of the tables. A file with another one is refused in words; version 1 was never released."""

STATUSES = ("pending", "executing", "completed", "failed", "interrupted", "cancelled")

TABLES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "conversations": (
        "one row per conversation: its index card",
        {
            "owner": ("VARCHAR NOT NULL", "what Store(owner=…) made of the scope"),
            "conversation_id": ("VARCHAR NOT NULL", "any text; a UUIDv7 when nobody chose one"),
            "title": ("VARCHAR", "for people"),
            "revision": ("BIGINT NOT NULL", "number of the newest State, 0 before the first"),
            "n_messages": ("INTEGER NOT NULL", "messages in that State: what the model sees"),
            "n_rows": ("INTEGER NOT NULL", "rows in display_messages: what people see"),
            "interrupt": ("VARCHAR", "kind of the interrupt it waits at, if it waits for a person"),
            "forked_from": ("VARCHAR", "conversation it was forked from"),
            "forked_revision": ("BIGINT", "revision it was forked at"),
            "last_sequence": ("BIGINT NOT NULL", "highest sequence in display_messages"),
            "last_event_seq": ("BIGINT NOT NULL", "highest number of an event, the unstored deltas included"),
            "inserted_at": ("TIMESTAMPTZ NOT NULL", "when it began"),
            "updated_at": ("TIMESTAMPTZ NOT NULL", "when something of it was saved last"),
        },
    ),
    "state_log": (
        "how States are kept: each revision keeps a head and a tail of the messages before it and adds its own",
        {
            "owner": ("VARCHAR NOT NULL", "as in conversations"),
            "conversation_id": ("VARCHAR NOT NULL", "as in conversations"),
            "revision": ("BIGINT NOT NULL", "from 1, dense"),
            "keyframe": (
                "BIGINT NOT NULL",
                "latest revision, this one included, that keeps nothing and so is complete",
            ),
            "keep_prefix": ("INTEGER NOT NULL", "messages kept from the head of the revision before"),
            "keep_suffix": ("INTEGER NOT NULL", "messages kept from its tail"),
            "n_added": ("INTEGER NOT NULL", "messages in `added`"),
            "n_messages": ("INTEGER NOT NULL", "messages of the State: kept and added"),
            # Uncompressed: an automatic choice makes reading ten times slower and checkpoints of 4-10 kB texts crawl.
            "added": ("JSON USING COMPRESSION uncompressed NOT NULL", "array of the new messages"),
            "rest": ("JSON NOT NULL", "the State without its messages"),
            "inserted_at": ("TIMESTAMPTZ NOT NULL", "when it was saved"),
        },
    ),
    "display_messages": (
        "what people see: one row per piece of the transcript",
        {
            "owner": ("VARCHAR NOT NULL", "as in conversations"),
            "conversation_id": ("VARCHAR NOT NULL", "as in conversations"),
            "sequence": ("BIGINT NOT NULL", "place in the transcript, from 1"),
            "id": ("VARCHAR NOT NULL", "UUIDv7"),
            "message_type": ("VARCHAR NOT NULL", "user, assistant, tool or system"),
            "content_type": (
                "VARCHAR NOT NULL",
                "text, thinking, tool_call, tool_result, …: says which keys content has",
            ),
            "content": ("JSON NOT NULL", "the piece itself"),
            "search_text": ("VARCHAR", "its words, for ILIKE"),
            "tool_call_id": ("VARCHAR", "of tool_call and tool_result"),
            "status": (
                f"VARCHAR NOT NULL CHECK (status IN {STATUSES})",
                "of a tool call: pending, executing, completed, failed, interrupted, cancelled",
            ),
            "metadata": ("JSON NOT NULL", "of a tool call: duration in seconds, what it printed"),
            "revision": ("BIGINT NOT NULL", "of the State that was saved with it"),
            "inserted_at": ("TIMESTAMPTZ NOT NULL", "when it was said"),
            "updated_at": ("TIMESTAMPTZ", "when status, metadata or content changed"),
        },
    ),
    "events": (
        "the trace: what ran when, how long it took, whether it changed the State",
        {
            "owner": ("VARCHAR NOT NULL", "as in conversations"),
            "conversation_id": ("VARCHAR NOT NULL", "as in conversations"),
            "run_id": ("VARCHAR", "the run it belongs to"),
            "seq": ("BIGINT NOT NULL", "number, rising; gaps are the pieces of streamed text, which are not stored"),
            "type": ("VARCHAR NOT NULL", "run_started, hook_ended, model_ended, tool_ended, …"),
            # `at`, the event's own name for it, is a reserved word in DuckDB 2.
            "happened_at": ("TIMESTAMPTZ NOT NULL", "when"),
            "cycle": ("INTEGER", "pass of the loop, from 1"),
            "middleware": ("VARCHAR", "of hook events: its name in the stack"),
            "hook": ("VARCHAR", "of hook events: which hook"),
            "model": ("VARCHAR", "of model events: which model"),
            "tool_name": ("VARCHAR", "of tool events: which tool"),
            "tool_call_id": ("VARCHAR", "of tool events: which call"),
            "name": ("VARCHAR", "of published events: what it is called"),
            "status": ("VARCHAR", "of run_ended and status_changed"),
            "duration": ("DOUBLE", "seconds"),
            "changed": ("BOOLEAN", "of hook_ended: whether the State afterwards is another one"),
            "error": ("VARCHAR", "what went wrong, in words"),
            "input_tokens": ("BIGINT", "of model_ended: tokens read"),
            "output_tokens": ("BIGINT", "of model_ended: tokens written"),
            "revision": ("BIGINT NOT NULL", "of the State that was saved with it"),
            "data": ("JSON NOT NULL", "the whole event"),
        },
    ),
    "file_versions": (
        "versions of the files of the virtual filesystem, append-only",
        {
            "owner": ("VARCHAR NOT NULL", "as in conversations"),
            "space": ("VARCHAR NOT NULL", "which filesystem"),
            "path": ("VARCHAR NOT NULL", "from the root, /notes/a.txt"),
            "version": ("BIGINT NOT NULL", "from 1"),
            "deleted": ("BOOLEAN NOT NULL", "whether this version is the file's absence"),
            "content": ("VARCHAR", "text"),
            "metadata": ("JSON NOT NULL", "of the file"),
            "inserted_at": ("TIMESTAMPTZ NOT NULL", "when it was written"),
        },
    ),
}
"""What each table is for, and of each column its type and its meaning."""

_KEYS = {
    "conversations": ", PRIMARY KEY (owner, conversation_id)",
    # The guard against two writers of one revision; nothing is looked up by it.
    "state_log": ", PRIMARY KEY (owner, conversation_id, revision)",
}

VIEWS: dict[str, tuple[str, dict[str, tuple[str, str]], str]] = {
    "agent_states": (
        "what the model sees: every revision of every State as complete JSON",
        {
            "owner": ("VARCHAR", "as in conversations"),
            "conversation_id": ("VARCHAR", "as in conversations"),
            "revision": ("BIGINT", "from 1"),
            "state": ("JSON", "the State: messages, todos, metadata, interrupt. Put together when it is asked for"),
            "current": ("BOOLEAN", "whether it is the newest: ask WHERE current unless you want the history"),
            "n_messages": ("INTEGER", "messages in it"),
            "n_added": ("INTEGER", "messages that are not in the revision before"),
            "inserted_at": ("TIMESTAMPTZ", "when it was saved"),
        },
        # A join with the revisions since the keyframe and a GROUP BY, since a filter on the groups goes down to the
        # scan; with a correlated or a recursive query it does not, and every State of the file would be built. What
        # only ever appended is put together as text; a fold over lists costs ten times as much and is for the rest.
        """
        WITH steps AS (
          SELECT l.owner, l.conversation_id, l.revision, l.revision = c.revision AS current, l.n_messages, l.n_added,
            l.inserted_at, l.rest, sum(x.n_added) AS n_ever, max(x.keep_suffix) AS kept_behind,
            list({p: x.keep_prefix, s: x.keep_suffix, t: CAST(x.added AS VARCHAR), m: CAST([] AS JSON[])}
                 ORDER BY x.revision) AS log
          FROM state_log l
          JOIN conversations c ON c.owner = l.owner AND c.conversation_id = l.conversation_id
          JOIN state_log x ON x.owner = l.owner AND x.conversation_id = l.conversation_id
            AND x.revision BETWEEN l.keyframe AND l.revision
          GROUP BY ALL)
        SELECT owner, conversation_id, revision,
          CAST('{"messages":[' || CASE WHEN n_ever = n_messages AND kept_behind = 0
            THEN array_to_string([substr(r.t, 2, length(r.t) - 2) FOR r IN log IF r.t <> '[]'], ',')
            ELSE array_to_string(CAST(list_reduce(log, lambda a, r: {p: 0, s: 0, t: '', m:
                a.m[:r.p] || CAST(r.t AS JSON[]) || (CASE WHEN r.s = 0 THEN CAST([] AS JSON[]) ELSE a.m[-r.s:] END)},
                {p: 0, s: 0, t: '', m: CAST([] AS JSON[])}).m AS VARCHAR[]), ',')
            END || '],' || substr(CAST(rest AS VARCHAR), 2) AS JSON) AS state,
          current, n_messages, n_added, inserted_at
        FROM steps
        """,
    ),
    "files": (
        "the newest version of each file of the virtual filesystem",
        {
            "owner": ("VARCHAR", "as in conversations"),
            "space": ("VARCHAR", "which filesystem"),
            "path": ("VARCHAR", "from the root, /notes/a.txt"),
            "version": ("BIGINT", "from 1"),
            "content": ("VARCHAR", "text"),
            "metadata": ("JSON", "of the file"),
            "inserted_at": ("TIMESTAMPTZ", "when it was written"),
        },
        """
        SELECT owner, space, path, version, content, metadata, inserted_at FROM file_versions
        QUALIFY row_number() OVER (PARTITION BY owner, space, path ORDER BY version DESC) = 1 AND NOT deleted
        """,
    ),
}
"""What each view is for, its columns, and its query."""

NEEDED_BY = {"agent_states": ("state_log", "conversations"), "files": ("file_versions",)}
"""Tables behind the views."""


def _quoted(words: str) -> str:
    return "'" + words.replace("'", "''") + "'"


def create_tables(*, comments: bool = True) -> list[str]:
    """Statements that make the tables and views.

    Args:
        comments: whether their meaning goes with them, for ``duckdb_columns()`` and other tools.
    """
    statements = []
    for table, (words, columns) in TABLES.items():
        body = ", ".join(f"{column} {kind}" for column, (kind, _) in columns.items())
        statements.append(f"CREATE TABLE {table} ({body}{_KEYS.get(table, '')})")
        statements += _comments("TABLE", table, words, columns) if comments else []
    for view, (words, columns, query) in VIEWS.items():
        statements.append(f"CREATE VIEW {view} AS {query}")
        statements += _comments("VIEW", view, words, columns) if comments else []
    return statements


def _comments(kind: str, name: str, words: str, columns: dict[str, tuple[str, str]]) -> list[str]:
    return [
        f"COMMENT ON {kind} {name} IS {_quoted(words)}",
        *(f"COMMENT ON COLUMN {name}.{column} IS {_quoted(meaning)}" for column, (_, meaning) in columns.items()),
    ]


def explained() -> list[tuple[str, str, str, str]]:
    """Table or view, column, type and meaning; the first row of each, without a column, says what it is for."""
    rows: list[tuple[str, str, str, str]] = []
    kinds = [(name, words, columns, "view") for name, (words, columns, _) in VIEWS.items()]
    kinds += [(name, words, columns, "table") for name, (words, columns) in TABLES.items()]
    order = ["conversations", "agent_states", "display_messages", "events", "files", "state_log", "file_versions"]
    for name, words, columns, kind in sorted(kinds, key=lambda item: order.index(item[0])):
        rows.append((name, "", kind, words))
        rows += [(name, column, declared.split()[0], meaning) for column, (declared, meaning) in columns.items()]
    return rows
