"""Task lists: as they are, and as models write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sagents_nb import State, Todo
from sagents_nb.todos import is_open, resolved, todos_from_maps

IDS: list[tuple[Any, int | None]] = [(5, 5), ("5", 5), (0, None), (-1, None), ("abc", None), (None, None), (2.5, None)]


@pytest.mark.parametrize(("given_id", "kept"), IDS, ids=range(len(IDS)))
def test_an_id_is_a_positive_number_or_the_text_of_one(given_id: Any, kept: int | None) -> None:
    for make in (
        lambda: Todo(id=given_id, content="x"),
        lambda: Todo.from_map({"id": given_id, "content": "x"}),
        lambda: Todo.from_json({"id": given_id, "content": "x"}),
    ):
        if kept is None:
            with pytest.raises(ValueError, match="id"):
                make()
        else:
            assert make() == Todo(id=kept, content="x", status="pending")


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Todo(content="x"), "id\n  Field required"),  # type: ignore[call-arg]
    (lambda: Todo(id=1), "content\n  Field required"),  # type: ignore[call-arg]
    (lambda: Todo(id=1, content="x", status="invalid"), "'pending', 'in_progress', 'completed' or 'cancelled'"),
    (lambda: Todo(id=1, content="x", status=None), "'pending', 'in_progress', 'completed' or 'cancelled'"),
    (lambda: Todo(id=1, content="x", done=True), "Extra inputs are not permitted"),  # type: ignore[call-arg]
    (lambda: Todo.from_map({"content": "x"}), "id\n  Field required"),
    (lambda: Todo.from_map({"id": 1}), "content\n  Field required"),
    (lambda: Todo.from_map({"id": 1, "content": ""}), "at least 1 character"),
    (lambda: Todo.from_map({"id": 1, "content": "x" * 1001}), "at most 1000 characters"),
    (lambda: Todo.from_map({"id": 1, "content": "x", "status": None}), "'pending', 'in_progress'"),
    (lambda: todos_from_maps([{"content": "x"}, {"content": ""}]), "todo 2: content: String should have at least 1"),
    (lambda: todos_from_maps([{"content": "x"}, "buy milk"]), "todo 2 is a str; it is an object with id, content and"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("make", "words"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_todo_is_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert words in str(caught.value)


def test_a_status_of_the_models_own_is_pending_and_what_else_it_says_is_ignored() -> None:
    assert Todo.from_map({"id": 1, "content": "x", "status": "invalid"}) == Todo(id=1, content="x")
    assert Todo.from_map({"id": 1, "content": "x", "activeForm": "doing x"}) == Todo(id=1, content="x")
    done = Todo(id=2, content="y", status="completed")
    assert Todo.from_map(done.to_map()) == done
    assert Todo(id=1, content="x").to_map() == {"id": 1, "content": "x", "status": "pending"}


LISTS: list[tuple[list[Any], list[int]]] = [
    ([5, ..., 9], [5, 2, 9]),
    (["01", "02"], [1, 2]),
    (["first", "second"], [1, 2]),
    ([None, 0, -3, True, 2.5, [], ""], [1, 2, 3, 4, 5, 6, 7]),
    ([7.0, "8"], [7, 8]),
    ([..., 1], [2, 1]),  # never two with one number, unless the model says so itself
    ([..., 1, 2, 3, ...], [4, 1, 2, 3, 5]),
    ([4, 4], [4, 4]),
    (["9" * 5000], [1]),
    ([], []),
]


@pytest.mark.parametrize(("given_ids", "ids"), LISTS, ids=range(len(LISTS)))
def test_who_has_no_number_gets_its_place_in_the_list(given_ids: list[Any], ids: list[int]) -> None:
    maps = [{"content": "x"} | ({} if each is ... else {"id": each}) for each in given_ids]
    assert [todo.id for todo in todos_from_maps(maps)] == ids


@given(st.lists(st.none() | st.integers(-2, 6) | st.sampled_from(["x", "3", "1"]), max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_number_that_is_made_up_is_nobody_elses(given_ids: list[Any]) -> None:
    found = [todo.id for todo in todos_from_maps({"id": each, "content": "x"} for each in given_ids)]
    own = {"3": 3, "1": 1}
    said = [own.get(each, each) for each in given_ids]
    made_up = [number for number, each in zip(found, said, strict=True) if number != each]
    assert all(found.count(number) == 1 for number in made_up)
    assert [n for n in said if isinstance(n, int) and n > 0] == [
        n for n, each in zip(found, said, strict=True) if n == each
    ]


DONE: list[tuple[Any, bool]] = [
    ("completed", True),
    ("cancelled", True),
    ("pending", False),
    ("in_progress", False),
    ("done", False),
    ("COMPLETED", False),
    ("", False),
    (None, False),
    (Todo(id=1, content="x", status="completed"), True),
    (Todo(id=1, content="x", status="cancelled"), True),
    (Todo(id=1, content="x"), False),
]


@pytest.mark.parametrize(("item", "done"), DONE, ids=range(len(DONE)))
def test_whether_something_is_left_to_do(item: Any, done: bool) -> None:
    assert (resolved(item), is_open(item)) == (done, not done)


@pytest.mark.parametrize("item", [42, b"completed", {"status": "completed"}])
def test_what_is_neither_todo_nor_status_is_refused(item: Any) -> None:
    for ask in (resolved, is_open):
        with pytest.raises(TypeError, match="resolved takes a Todo or its status, got"):
            ask(item)


def todos(*ids: int) -> tuple[Todo, ...]:
    return tuple(Todo(id=n, content=f"todo {n}") for n in ids)


def test_a_todo_is_put_at_the_end_or_in_the_place_of_the_one_with_its_number() -> None:
    state = State()
    for todo in todos(3, 1, 2):
        state = state.put_todo(todo)
    assert state.todos == todos(3, 1, 2)
    three = State(todos=todos(1, 2, 3))
    changed = three.put_todo(Todo(id=2, content="new", status="completed"))
    assert [(todo.id, todo.content) for todo in changed.todos] == [(1, "todo 1"), (2, "new"), (3, "todo 3")]
    assert three.todos == todos(1, 2, 3)
    with pytest.raises(TypeError, match=r"put_todo got a dict: give it a Todo, or Todo.from_map\({'id': 1}\)"):
        state.put_todo({"id": 1})  # type: ignore[arg-type]


def test_todos_are_found_by_number_and_by_status() -> None:
    state = State(todos=(*todos(3, 1), Todo(id=2, content="done", status="completed")))
    assert state.get_todo(1) == Todo(id=1, content="todo 1")
    assert state.get_todo(9) is None
    assert state.todos_by_status("pending") == todos(3, 1)
    assert [todo.id for todo in state.todos_by_status("completed")] == [2]
    assert state.todos_by_status("cancelled") == ()
    assert state.delete_todo(3).todos == state.todos[1:]
    assert state.delete_todo(9).todos == state.todos
