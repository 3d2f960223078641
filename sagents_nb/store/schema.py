"""Tables and views of a database file.

Append-only where it can be: DuckDB rewrites a whole column of a row group when one value in it is updated. No foreign
keys and no secondary indexes: filters on owner and conversation would not use them, and updates of indexed rows can lose
a concurrent change. Ids are UUIDv7 or chosen by people; rows come in time order, so zone maps find them.
"""

from __future__ import annotations

SCHEMA_VERSION = 1
"""Version of the tables; a file with a newer one is refused."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta(key VARCHAR NOT NULL, value VARCHAR NOT NULL);

CREATE TABLE IF NOT EXISTS conversations(
  owner VARCHAR NOT NULL, conversation_id VARCHAR NOT NULL, title VARCHAR,
  forked_from VARCHAR, forked_revision BIGINT,
  inserted_at TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (owner, conversation_id));

CREATE TABLE IF NOT EXISTS state_log(
  owner VARCHAR NOT NULL, conversation_id VARCHAR NOT NULL, revision BIGINT NOT NULL,
  keep_prefix INTEGER NOT NULL, keep_suffix INTEGER NOT NULL,
  n_added INTEGER NOT NULL, n_messages INTEGER NOT NULL,
  added JSON USING COMPRESSION uncompressed NOT NULL, rest JSON NOT NULL, inserted_at TIMESTAMPTZ NOT NULL,
  PRIMARY KEY (owner, conversation_id, revision));

CREATE TABLE IF NOT EXISTS display_messages(
  owner VARCHAR NOT NULL, conversation_id VARCHAR NOT NULL, id VARCHAR NOT NULL, sequence BIGINT NOT NULL,
  message_type VARCHAR NOT NULL, content_type VARCHAR NOT NULL, content JSON NOT NULL, tool_call_id VARCHAR,
  search_text VARCHAR,
  status VARCHAR NOT NULL
    CHECK (status IN ('pending', 'executing', 'completed', 'failed', 'interrupted', 'cancelled')),
  metadata JSON NOT NULL, inserted_at TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ);

CREATE TABLE IF NOT EXISTS events(
  owner VARCHAR NOT NULL, conversation_id VARCHAR NOT NULL, seq BIGINT NOT NULL, run_id VARCHAR, type VARCHAR NOT NULL,
  happened_at TIMESTAMPTZ NOT NULL, cycle INTEGER, middleware VARCHAR, hook VARCHAR, name VARCHAR, status VARCHAR,
  duration DOUBLE, changed BOOLEAN, error VARCHAR, data JSON NOT NULL);

CREATE TABLE IF NOT EXISTS file_versions(
  owner VARCHAR NOT NULL, space VARCHAR NOT NULL, path VARCHAR NOT NULL, version BIGINT NOT NULL,
  deleted BOOLEAN NOT NULL, content VARCHAR, metadata JSON, inserted_at TIMESTAMPTZ NOT NULL);

CREATE OR REPLACE VIEW agent_states AS
WITH RECURSIVE latest AS (
  SELECT owner, conversation_id, max(revision) AS revision FROM state_log GROUP BY ALL
), chain AS (
  SELECT l.owner, l.conversation_id, l.revision, l.keep_prefix AS p, l.keep_suffix AS s, l.added
  FROM state_log l JOIN latest USING (owner, conversation_id, revision)
  UNION ALL
  SELECT l.owner, l.conversation_id, l.revision, l.keep_prefix, l.keep_suffix, l.added
  FROM chain c JOIN state_log l
    ON l.owner = c.owner AND l.conversation_id = c.conversation_id AND l.revision = c.revision - 1
  WHERE NOT (c.p = 0 AND c.s = 0)
), folded AS (
  SELECT owner, conversation_id, list_reduce(
    list({p: p, s: s, a: added::JSON[]} ORDER BY revision),
    lambda acc, x: {p: 0, s: 0,
      a: acc.a[:x.p] || x.a || (CASE WHEN x.s = 0 THEN []::JSON[] ELSE acc.a[-x.s:] END)}).a AS messages
  FROM chain GROUP BY owner, conversation_id
)
SELECT l.owner, l.conversation_id, l.revision, l.n_messages, l.inserted_at,
  ('{"messages":' || CAST(to_json(f.messages) AS VARCHAR) || ',' || substr(CAST(l.rest AS VARCHAR), 2))::JSON AS state
FROM latest JOIN state_log l USING (owner, conversation_id, revision) JOIN folded f USING (owner, conversation_id);

CREATE OR REPLACE VIEW files AS
SELECT owner, space, path, version, content, metadata, inserted_at FROM (
  SELECT *, row_number() OVER (PARTITION BY owner, space, path ORDER BY version DESC) AS newest FROM file_versions
) WHERE newest = 1 AND NOT deleted;
"""

EXPLAINED = {
    "conversations": "one row per conversation: its owner, id, title, when it began and when it last changed",
    "agent_states": "what the model sees: the newest State of each conversation as complete JSON, and its revision",
    "display_messages": "what people see: one row per piece of the transcript, in the order of `sequence`",
    "events": "the trace: what ran when, how long it took and whether it changed the State, in the order of `seq`",
    "files": "the newest version of each file of the virtual filesystem",
    "state_log": "how the States are kept: each revision adds messages to a head and a tail of the one before",
}
"""Tables and views people query, in words."""

QUERIED = ("conversations", "agent_states", "display_messages", "events", "files")
"""Those that ``sql(…, scope=…)`` shows."""
