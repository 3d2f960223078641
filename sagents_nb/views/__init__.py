"""Pure HTML: what agents, stacks, states, results and conversations look like. Imports nothing of Jupyter.

Every function takes values and gives a string. The same fragments are drawn live by `sagents_nb.widgets`, kept in
saved notebooks, and written into reports. All text by anybody is escaped; Markdown is sanitised; the values of
scope and tool_context appear nowhere.
"""

from sagents_nb.views.chat import chat_html
from sagents_nb.views.markdown import markdown_html
from sagents_nb.views.pages import agent_html, report_html, result_html, session_html
from sagents_nb.views.sandwich import sandwich_html
from sagents_nb.views.state import state_html
from sagents_nb.views.trace import trace_html

__all__ = [
    "agent_html",
    "chat_html",
    "markdown_html",
    "report_html",
    "result_html",
    "sandwich_html",
    "session_html",
    "state_html",
    "trace_html",
]
