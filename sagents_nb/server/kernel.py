"""The kernel's event loop, on which the main thread runs cells and is idle between them."""

from __future__ import annotations

import asyncio
import sys


def kernel_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the IPython kernel of this process; None where there is none."""
    ipython = sys.modules.get("IPython")  # not imported: without IPython there is no kernel
    shell = ipython.get_ipython() if ipython is not None else None
    loop = getattr(getattr(getattr(shell, "kernel", None), "io_loop", None), "asyncio_loop", None)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None
