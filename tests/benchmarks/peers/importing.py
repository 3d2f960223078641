"""What an import costs, in a process that has imported next to nothing: ``python -m … STATEMENT`` prints JSON."""

import sys
import time

from tests.benchmarks.peers.memory import peak

before = peak()
start = time.process_time()
exec(sys.argv[1])
spent = time.process_time() - start
added = peak() - before
modules = len(sys.modules)

import json  # noqa: E402 - what this brings must not count as already there

print(json.dumps({"samples": {"cpu": [spent], "memory": [added], "modules": [modules]}, "calibration": []}))
