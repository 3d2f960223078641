"""Live views for notebooks: what `sagents_nb.views` draws, kept up to date, with a composer and buttons."""

from sagents_nb.widgets.bench import ChatView, ContextView, SandwichView, StateView, TraceView, Workbench
from sagents_nb.widgets.view import View

__all__ = ["ChatView", "ContextView", "SandwichView", "StateView", "TraceView", "View", "Workbench"]
