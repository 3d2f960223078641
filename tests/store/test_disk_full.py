from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sagents_nb.store import Store
from tests.store.support import output, texts

# A limit on the size of files stands in for a full disk: the same calls fail.
FULL = """
import resource, signal, sys
from sagents_nb.errors import StoreError
from sagents_nb.store import Store, Turn
from tests.store.support import state
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(sys.argv[1])
first = state("first")
store.save_turn(None, Turn("c", state=first)).result()
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    store.save_turn(None, Turn("c", state=first.add_message("x" * 2_000_000))).result()
except StoreError as error:
    print(str(error).replace(sys.argv[1], "it"))
print(store.save_turn(None, Turn("c", state=first.add_message("second"))).result())
print([message.text for message in store.load_state(None, "c").messages])
store.close()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="this system does not limit files")
def test_a_full_disk_costs_the_turn_that_does_not_fit(path: Path) -> None:
    lines = output(FULL, path).split("\n")
    assert lines[0].startswith("the store it could not be written: the disk is full (")
    assert lines[1:] == ["2", "['first', 'second']"]
    with Store(path) as store:
        assert texts(store.load_state(None, "c")) == ["first", "second"]
