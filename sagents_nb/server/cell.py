"""Which notebook cell runs now, so that running it again can close what it made before."""

from __future__ import annotations

import sys
from typing import NamedTuple


class CellRun(NamedTuple):
    """One execution of one cell.

    Attributes:
        cell: id of the cell in the notebook.
        execution: id of this execution.
    """

    cell: str
    execution: str


def executing_cell() -> CellRun | None:
    """The cell that runs now; None outside a notebook, or where the front end does not tell."""
    ipython = sys.modules.get("IPython")  # not imported: without IPython there is no cell
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    parent = kernel.get_parent("shell") or {}
    cell = parent.get("metadata", {}).get("cellId")
    execution = parent.get("header", {}).get("msg_id")
    return CellRun(cell, execution) if cell and execution else None
