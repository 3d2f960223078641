"""Memory of this process. Imports nothing at the top: an import is measured with it."""

import sys


def peak() -> int:
    """The most memory this process has held so far, in bytes."""
    try:
        # Not getrusage: on Linux that begins with what the parent held when it started this process.
        with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123 - pathlib is an import too
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except FileNotFoundError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
