from collections.abc import Iterator

import pytest

from sagents_nb.server.session import running_sessions


@pytest.fixture(autouse=True)
def _no_session_is_left() -> Iterator[None]:
    yield
    for session in running_sessions():
        session.stop()
