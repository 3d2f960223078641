"""Preprocessors: one user's message in, what people see and what the model is sent out, or a refusal in words."""

from __future__ import annotations

from typing import Any

import pytest

from sagents_nb import Image, Message, MessageRejected, SagentsError, State
from sagents_nb.preprocess import PreprocessContext, Preprocessed, preprocess

CONTEXT: PreprocessContext = {
    "agent_id": "a",
    "conversation_id": "c",
    "tool_context": {"tenant": "acme"},
    "state": State.from_text("before"),
}
SENT = Message("user", "see @file")
RESOLVED = Message("user", "see the text of the file")


async def test_without_a_preprocessor_people_and_model_get_the_same() -> None:
    assert await preprocess(None, "ann", SENT, CONTEXT) == Preprocessed(display=SENT, llm=SENT)


GIVEN: list[tuple[Any, Message, Message]] = [
    (RESOLVED, RESOLVED, RESOLVED),
    ((SENT, RESOLVED), SENT, RESOLVED),
    (Preprocessed(SENT, RESOLVED), SENT, RESOLVED),
    (picture := Message("user", [Image(url="https://example.org/x.png")]), picture, picture),
]


@pytest.mark.parametrize(("answer", "display", "llm"), GIVEN, ids=range(len(GIVEN)))
@pytest.mark.parametrize("form", ["function", "async function", "object"])
async def test_a_preprocessor_gives_one_message_for_both_or_one_for_each(
    form: str, answer: Any, display: Message, llm: Message
) -> None:
    asked = []

    class Resolver:
        def preprocess(self, scope: Any, message: Message, context: PreprocessContext) -> Any:
            asked.append((scope, message, context))
            return answer

    async def resolve(scope: Any, message: Message, context: PreprocessContext) -> Any:
        return Resolver().preprocess(scope, message, context)

    preprocessor: Any = {"function": Resolver().preprocess, "async function": resolve, "object": Resolver()}[form]
    result = await preprocess(preprocessor, "ann", SENT, CONTEXT)
    assert (result.display, result.llm) == (display, llm)
    assert asked == [("ann", SENT, CONTEXT)]


async def test_a_preprocessor_refuses_in_its_own_words() -> None:
    def refuse(scope: Any, message: Message, context: PreprocessContext) -> Message:
        raise MessageRejected("no files larger than 1 MB, please")

    with pytest.raises(MessageRejected, match=r"^no files larger than 1 MB, please$") as caught:
        await preprocess(refuse, None, SENT, CONTEXT)
    assert isinstance(caught.value, SagentsError)
    assert isinstance(caught.value, ValueError)


async def test_a_preprocessor_that_fails_refuses_the_message_and_says_who_it_was() -> None:
    class Broken:
        async def preprocess(self, scope: Any, message: Message, context: PreprocessContext) -> Message:
            raise KeyError("file")

    with pytest.raises(MessageRejected) as caught:
        await preprocess(Broken(), None, SENT, CONTEXT)
    assert str(caught.value).startswith("the message was not accepted: the preprocessor ")
    assert str(caught.value).endswith("Broken.preprocess raised KeyError: 'file'")
    assert isinstance(caught.value.__cause__, KeyError)


WRONG: list[tuple[Any, str]] = [
    (
        None,
        "gave a NoneType; it returns a user's Message, or (display, llm), a Message for people and one for the model",
    ),
    ("text", "gave a str"),
    ((SENT,), "gave a tuple of 1"),
    ((SENT, SENT, SENT), "gave a tuple of 3"),
    ((SENT, None), "gave a NoneType"),
    ([SENT, SENT], "gave a list"),
    (Message("assistant", "hi"), "gave a Message of the role 'assistant'"),
    ((SENT, Message("system", "hi")), "gave a Message of the role 'system'"),
    (Message("user", "  "), "gave a Message with nothing in it"),
    ((SENT, Message("user")), "gave a Message with nothing in it"),
]


@pytest.mark.parametrize(("answer", "words"), WRONG, ids=range(len(WRONG)))
async def test_what_is_no_message_of_a_user_is_refused_in_words(answer: Any, words: str) -> None:
    def give(scope: Any, message: Message, context: PreprocessContext) -> Any:
        return answer

    with pytest.raises(MessageRejected) as caught:
        await preprocess(give, None, SENT, CONTEXT)
    assert str(caught.value).startswith("the message was not accepted: the preprocessor ")
    assert f"give {words}" in str(caught.value)
