"""Watching a session: every event, in order, until the end."""

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest

from sagents_nb import Agent
from sagents_nb.events import Event, Published, StatusChanged
from sagents_nb.execution import heartbeat
from sagents_nb.server.publisher import Publisher

from .doubles import TIMEOUT, EchoModel, Unreliable, WaitingModel, eventually, recorded, scripted


def test_a_run_from_beginning_to_end() -> None:
    session = scripted("Hello there!").session()
    with recorded(session) as events:
        session.send("hi")
        session.wait(TIMEOUT)
    assert [event.type for event in events if event.type != "saved"] == [
        "status_changed",
        "display_changed",
        "run_started",
        "cycle_started",
        "middleware_prepared",
        "model_started",
        "model_delta",
        "model_delta",
        "model_delta",
        "model_ended",
        "message_added",
        "display_changed",
        "run_ended",
        "status_changed",
    ]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.agent_id for event in events} == {session.agent_id}
    assert events[-2].type == "saved"  # durable before it is idle


def test_subscribe_gives_what_comes_until_the_session_stops() -> None:
    session = Agent(model=EchoModel(), name="x").session(store=Unreliable(delay=0.05))
    with session.subscribe() as events:
        session.send("hi")
        threading.Timer(0.02, session.stop).start()
        seen = list(events)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    # Also what comes while the end is being saved.
    assert [event.type for event in seen][-3:] == ["saved", "status_changed", "session_stopped"]


def test_subscribing_to_a_session_that_has_stopped_ends_at_once() -> None:
    session = scripted("x").session()
    session.stop()
    with session.subscribe() as events:
        assert list(events) == []


async def test_events_end_with_the_run_if_wanted() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    seen: list[Event] = []

    async def watch() -> None:
        async for event in session.events(until="idle"):
            seen.append(event)

    session.send("hi")
    watching = asyncio.ensure_future(watch())
    await asyncio.to_thread(model.reached.wait, TIMEOUT)
    await asyncio.sleep(0.01)
    model.go.set()
    await asyncio.wait_for(watching, TIMEOUT)
    assert isinstance(seen[-1], StatusChanged)
    assert seen[-1].status == "idle"
    assert [event.seq for event in seen] == list(range(seen[0].seq, seen[-1].seq + 1))
    assert not session._server.publisher._subscribers


async def test_events_until_idle_of_an_idle_session_are_none() -> None:
    session = scripted("x").session()
    assert [event async for event in session.events(until="idle")] == []


async def test_a_slow_reader_still_gets_the_run_to_its_end() -> None:
    """At the moment it reads ``running`` the session is idle already; that is no reason to leave."""
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("hi")
    seen: list[Event] = []
    async for event in session.events(until="idle"):
        seen.append(event)
        model.go.set()
        if session.status == "running":
            await asyncio.to_thread(session.wait, TIMEOUT)
    assert seen[-1].type == "status_changed"
    assert "run_ended" in [event.type for event in seen]


async def test_events_end_when_the_session_stops() -> None:
    session = scripted("one").session()
    seen: list[Event] = []

    async def watch() -> None:
        async for event in session.events():
            seen.append(event)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    session.send("hi")
    await session
    await session.aclose()
    await asyncio.wait_for(watching, TIMEOUT)
    assert seen[-1].type == "session_stopped"
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert [event async for event in session.events()] == []


async def test_who_stops_watching_is_forgotten_and_the_run_goes_on() -> None:
    model = WaitingModel()
    session = Agent(model=model).session()
    session.send("hi")
    events = session.events()
    await anext(events)
    await events.aclose()
    assert not session._server.publisher._subscribers
    model.go.set()
    assert await session == "idle"


# Subscribers are guests: what they do wrong is their own trouble.


def test_a_subscriber_that_raises_is_dropped_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def broken(event: Event) -> None:
        calls.append(event.seq)
        raise ZeroDivisionError

    session = scripted("one", "two").session()
    session.subscribe_callback(broken)
    with recorded(session) as events, caplog.at_level(logging.ERROR):
        session.send("hi")
        assert session.wait(TIMEOUT) == "idle"
    assert calls == [1]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert "a subscriber of session events raised and is not called any more" in caplog.text


def test_a_slow_subscriber_loses_nothing() -> None:
    session = Agent(model=EchoModel()).session()
    pause = threading.Event()
    seen: list[int] = []

    def slow(event: Event) -> None:
        pause.wait(0.002)
        seen.append(event.seq)

    session.subscribe_callback(slow)
    for number in range(5):
        session.send(str(number))
    assert session.wait(TIMEOUT) == "idle"
    eventually(lambda: len(seen) == session.snapshot().seq)
    assert seen == list(range(1, len(seen) + 1))


def test_a_subscriber_may_end_itself_and_others_in_the_middle() -> None:
    publisher = Publisher()
    log: list[str] = []

    def once(_event: Event) -> None:
        log.append("once")
        end_once()
        end_other()

    end_once = publisher.subscribe(once)
    end_other = publisher.subscribe(lambda _event: log.append("other"))
    publisher.subscribe(lambda _event: log.append("last"))
    event = Published(source="", name="")
    publisher.publish(event)
    publisher.publish(event)
    end_once()
    # The one who was being told already is told to the end.
    assert log == ["once", "other", "last", "last"]


def test_a_function_subscribed_twice_is_called_twice_and_ended_once_at_a_time() -> None:
    publisher = Publisher()
    log: list[str] = []

    def subscriber(_event: Event) -> None:
        log.append("x")

    end = publisher.subscribe(subscriber)
    publisher.subscribe(subscriber)
    publisher.publish(Published(source="", name=""))
    end()
    end()
    publisher.publish(Published(source="", name=""))
    assert log == ["x", "x", "x"]


def test_subscribers_come_and_go_while_others_are_told() -> None:
    publisher = Publisher()
    stop = threading.Event()
    counts = [0] * 4

    def come_and_go(number: int) -> None:
        while not stop.is_set():
            publisher.subscribe(lambda _event: None)()
            counts[number] += 1

    threads = [threading.Thread(target=come_and_go, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    publisher.subscribe(lambda event: seen.append(event.seq))
    for number in range(3000):
        publisher.publish(Published(source="", name="", seq=number))
    stop.set()
    for thread in threads:
        thread.join(TIMEOUT)
    assert seen == list(range(3000))
    assert len(publisher._subscribers) == 1


async def test_a_watcher_whose_loop_has_closed_is_dropped() -> None:
    session = scripted("one").session()

    async def first_event() -> Event:
        return await anext(session.events())

    def watch_a_moment() -> None:
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(first_event())
        loop.run_until_complete(asyncio.sleep(0))
        waiting.cancel()
        loop.run_until_complete(asyncio.wait({waiting}))
        loop.close()

    await asyncio.to_thread(watch_a_moment)
    gc.collect()
    session.send("hi")
    assert await session == "idle"


# The timer that keeps a waiting loop open to interrupts.


async def one_timer_however_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: short runs one after the other leave one timer in a loop, not one each."""
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.02)
    loop = asyncio.get_running_loop()

    def timers() -> int:
        scheduled: Any = loop
        handles = [*scheduled._scheduled, *scheduled._ready]  # set, or due in this very pass of the loop
        return sum("_beat" in repr(handle) and not handle.cancelled() for handle in handles)

    for _ in range(30):
        with heartbeat.heartbeat(), heartbeat.heartbeat():
            await asyncio.sleep(0)
        with heartbeat.heartbeat():
            assert timers() == 1
    await asyncio.sleep(0.1)
    assert timers() == 0
    with heartbeat.heartbeat():
        assert timers() == 1
    await asyncio.sleep(0.1)


async def test_one_timer_however_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    await one_timer_however_many_runs(monkeypatch)


async def test_if_every_run_set_its_own_that_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def _beat(loop: asyncio.AbstractEventLoop, pulse: Any) -> None:
        if pulse.users > 0:
            loop.call_later(heartbeat.INTERVAL, heartbeat._beat, loop, pulse)

    monkeypatch.setattr(heartbeat, "_beat", _beat)
    with pytest.raises(AssertionError):
        await one_timer_however_many_runs(monkeypatch)
    await asyncio.sleep(0.1)
