"""What a cancelled run had reached."""

from sagents_nb.errors import state_of
from sagents_nb.state import State


def state_reached(cancelled: BaseException) -> State:
    """The State that came with a cancellation."""
    state = state_of(cancelled)
    assert state is not None, f"{cancelled!r} carries no State"
    return state
