"""Messages are answered one after the other, in the order in which they were sent."""

import asyncio
from typing import Any

import pytest

from sagents_nb import Agent, Interrupt, ModelError, ScriptedModel, ToolCall, tool
from sagents_nb.events import QueueChanged
from sagents_nb.server.agent_server import AgentServer

from .doubles import TIMEOUT, EchoModel, WaitingModel, in_threads, recorded, texts


def answers_one_after_the_other() -> None:
    """Rule: messages sent from eight threads at once are each answered before the next one is looked at."""
    model = EchoModel()
    session = Agent(model=model).session()

    def talk(number: int) -> None:
        for step in range(5):
            session.send(f"{number}.{step}")

    in_threads(8, talk)
    assert session.wait(TIMEOUT) == "idle"
    assert not model.overlapped
    said = texts(session)
    assert len(said) == 80
    for question, answer in zip(said[::2], said[1::2], strict=True):
        assert question.startswith("user: ")
        assert answer == f"assistant: echo {question.removeprefix('user: ')}"
    for number in range(8):  # of one thread, in its order
        mine = [text for text in model.asked if text.startswith(f"{number}.")]
        assert mine == [f"{number}.{step}" for step in range(5)]
    assert [message.text for message in session.state.messages] == [text.partition(": ")[2] for text in said]


def test_messages_are_answered_one_after_the_other() -> None:
    answers_one_after_the_other()


def test_with_a_worker_for_every_message_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentServer, "_pump", lambda server: asyncio.ensure_future(server._work()) and None)
    with pytest.raises(AssertionError):
        answers_one_after_the_other()


async def test_messages_from_tasks_of_one_loop_are_not_interleaved() -> None:
    model = EchoModel()
    session = Agent(model=model).session()

    async def talk(name: str) -> None:
        for step in range(5):
            session.send(f"{name}{step}")
            await asyncio.sleep(0)

    await asyncio.gather(*(talk(name) for name in "abcd"))
    assert await session.idle(TIMEOUT) == "idle"
    assert not model.overlapped
    assert sorted(model.asked) == [f"{name}{step}" for name in "abcd" for step in range(5)]
    assert [text.partition(":")[0] for text in texts(session)] == ["user", "assistant"] * 20


def test_those_who_watch_see_what_waits() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    with recorded(session) as events:
        session.send("a")
        assert model.reached.wait(TIMEOUT)
        session.send("b")
        session.send("c")
        session.cancel()  # comes after them, so what it leads to is later than what they announced
        model.go.set()
        session.wait(TIMEOUT)
    queues = [event.texts for event in events if isinstance(event, QueueChanged)]
    assert queues[-1] == ()
    assert ("b", "c") in queues
    assert all("a" not in queue for queue in queues)
    assert session.snapshot().queue == ()


def test_the_session_is_running_without_a_gap_until_all_are_answered() -> None:
    session = Agent(model=EchoModel(delay=0.002)).session()
    with recorded(session) as events:
        for number in range(5):
            session.send(str(number))
        assert session.wait(TIMEOUT) == "idle"
    assert len(session.display_messages) == 10
    assert [event.status for event in events if event.type == "status_changed"] == ["running", "idle"]


def test_a_failed_run_does_not_keep_the_next_message_waiting() -> None:
    model = ScriptedModel([ModelError("overworked"), "fine"])
    session = Agent(model=model).session()
    session.send("a")
    session.send("b")
    assert session.wait(TIMEOUT) == "idle"
    assert texts(session) == ["user: a", "system: overworked", "user: b", "assistant: fine"]


def test_a_run_that_waits_for_a_person_is_settled_and_a_message_goes_on() -> None:
    @tool
    def ask() -> Any:
        """Ask."""
        return Interrupt("question", "Which?")

    session = Agent(model=ScriptedModel([ToolCall("ask"), "fine"]), tools=[ask]).session()
    session.send("a")
    assert session.wait(TIMEOUT) == "interrupted"
    assert [(row.content_type, row.status) for row in session.display_messages] == [
        ("text", "completed"),
        ("tool_call", "interrupted"),
        ("tool_result", "completed"),
    ]
    session.send("never mind")
    assert session.wait(TIMEOUT) == "idle"
    assert session.state.interrupt is None


def test_what_waits_when_the_session_stops_is_kept_unanswered() -> None:
    model = WaitingModel()
    session = Agent(model=model).session(conversation_id="kept-unanswered")
    session.send("a")
    assert model.reached.wait(TIMEOUT)
    session.send("b")
    with recorded(session) as events:
        session.stop()
    assert texts(session) == ["user: a", "assistant: Half an ", "user: b"]
    assert [event.texts for event in events if isinstance(event, QueueChanged)][-1] == ()
    again = Agent(model=ScriptedModel(["to both"])).session(conversation_id="kept-unanswered")
    assert texts(again) == ["user: a", "assistant: Half an ", "user: b"]
    again.send("c")
    assert again.wait(TIMEOUT) == "idle"
    assert [message.text for message in again.state.messages] == ["a", "Half an ", "b", "c", "to both"]
