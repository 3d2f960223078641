"""Conversations in DuckDB."""

from sagents_nb.errors import UnknownConversation
from sagents_nb.server.persistence import MemoryPersistence, Persistence, StoredConversation, Turn
from sagents_nb.store.query import SqlResult
from sagents_nb.store.store import Conversation, Revision, Store

__all__ = [
    "Conversation",
    "MemoryPersistence",
    "Persistence",
    "Revision",
    "SqlResult",
    "Store",
    "StoredConversation",
    "Turn",
    "UnknownConversation",
]
