"""Names that never clash and sort by the time they were made."""

from __future__ import annotations

import uuid_utils


def new_id() -> str:
    """A new UUIDv7 as text (RFC 9562): the first 48 bits are milliseconds, so ids made later sort later."""
    return str(uuid_utils.uuid7())
