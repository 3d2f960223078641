"""Middlewares that come with the toolkit, one capability per file."""

from sagents_nb.middleware.process_context import ProcessContext

__all__ = ["ProcessContext"]
