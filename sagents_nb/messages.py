"""What people, models and tools say to each other: immutable, JSON through and through."""

from __future__ import annotations

import binascii
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from sagents_nb.frozen import CleanText, FrozenDict, JsonObject, frozen_object, thaw
from sagents_nb.value import Value

Role: TypeAlias = Literal["user", "assistant", "tool", "system"]
MessageStatus: TypeAlias = Literal["complete", "length", "cancelled", "refused", "stream_error"]


class _Tagged(Value):
    """A content part: its JSON form always names its type, also where other defaults are left out."""

    type: str

    if TYPE_CHECKING:  # each part has a signature of its own

        def __init__(self, **data: Any) -> None: ...

    @model_serializer(mode="wrap")
    def _name_type(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"type": self.type, **dump(self)}


class Text(_Tagged):
    """A piece of text."""

    type: Literal["text"] = "text"
    text: CleanText

    def __init__(self, text: str, **data: Any) -> None:
        super().__init__(text=text, **data)


class Thinking(_Tagged):
    """What the model thought before it spoke.

    Attributes:
        text: the thought, empty in the redacted form.
        signature: the provider's seal; without it the thought is not sent back.
        redacted: the provider's encrypted form, sent back as it came.
    """

    type: Literal["thinking"] = "thinking"
    text: CleanText = ""
    signature: CleanText | None = None
    redacted: CleanText | None = None


def _base64(data: Any) -> Any:
    try:
        if isinstance(data, str):
            binascii.a2b_base64(data, strict_mode=True)
        elif data is not None:
            raise ValueError(f"this is {type(data).__name__}")
    except ValueError as error:
        raise ValueError(f"data is base64 text: base64.b64encode(the_bytes).decode() ({error})") from None
    return data


Base64: TypeAlias = Annotated[str, BeforeValidator(_base64)]
"""Field type: bytes as base64 text."""


def _check_source(part: Image | File, example: str) -> None:
    kind = type(part).__name__
    if bool(part.url) == bool(part.data):
        has = "both" if part.url else "neither"
        raise ValueError(
            f"{kind} takes either url or data and has {has}: {kind}(url='https://…') or "
            f"{kind}(data='…', media_type={example!r})"
        )
    if part.data and not part.media_type:
        raise ValueError(f"{kind} with data takes a media_type, too: {kind}(data='…', media_type={example!r})")


class Image(_Tagged):
    """An image, either by `url` or as base64 `data` with its `media_type`."""

    type: Literal["image"] = "image"
    url: CleanText | None = None
    data: Base64 | None = Field(default=None, repr=False)
    media_type: CleanText | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        _check_source(self, "image/png")
        return self


class File(_Tagged):
    """A document, either by `url` or as base64 `data` with its `media_type`."""

    type: Literal["file"] = "file"
    name: CleanText = ""
    url: CleanText | None = None
    data: Base64 | None = Field(default=None, repr=False)
    media_type: CleanText | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        _check_source(self, "application/pdf")
        return self


Part: TypeAlias = Annotated[Text | Thinking | Image | File, Field(discriminator="type")]
Content: TypeAlias = "str | Text | Thinking | Image | File | Iterable[str | Text | Thinking | Image | File]"


def _as_parts(content: object) -> object:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, Value):
        return (content,)
    if isinstance(content, (list, tuple)):
        return tuple(Text(item) if isinstance(item, str) else item for item in content)
    return content


Parts: TypeAlias = Annotated[tuple[Part, ...], BeforeValidator(_as_parts)]


def text_of(parts: Iterable[Any]) -> str:
    """The joined text of the `Text` parts, a blank line between two."""
    return "\n\n".join(part.text for part in parts if isinstance(part, Text))


class Usage(Value):
    """Tokens spent; adds up with ``+`` and ``sum``."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cache_read_tokens: int = Field(default=0, ge=0)
    cache_write_tokens: int = Field(default=0, ge=0)

    def __add__(self, other: Usage | int) -> Usage:
        if type(other) is int and other == 0:  # what ``sum`` begins with
            return self
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )

    __radd__ = __add__

    @property
    def total_tokens(self) -> int:
        """Input and output together; cache tokens are part of neither."""
        return self.input_tokens + self.output_tokens


def _arguments(value: Any) -> Any:
    return frozen_object(
        value, path="arguments", hint="call.replace(arguments={**call.arguments, 'name': …}) gives a changed copy"
    )


class ToolCall(Value):
    """The model's wish to run a tool.

    Attributes:
        name: which tool.
        arguments: with what.
        id: ties the result to the call. Made up when not given.
        invalid_arguments: the model's own text when it was not a JSON object; the tool then does not run and the
            model is told.
    """

    name: CleanText
    arguments: Annotated[dict[str, Any], PlainValidator(_arguments)] = Field(default_factory=FrozenDict)
    id: CleanText = Field(default_factory=lambda: f"call_{uuid.uuid4().hex[:12]}")
    invalid_arguments: CleanText | None = None

    def __init__(self, name: str, arguments: Mapping[str, Any] | None = None, **data: Any) -> None:
        super().__init__(name=name, arguments={} if arguments is None else arguments, **data)


class ToolResult(Value):
    """What a tool answered.

    A tool may return one itself; `tool_call_id` and `name` are filled in then.

    Attributes:
        content: what the model sees.
        is_error: whether the call failed; the model sees that too.
        is_interrupt: whether this only holds the place of an answer that a person still has to give.
        processed: the value for the program (any Python object); never sent to the model and never saved.
        update: what the call changes in the State; never saved.
        display_text: a short label for people.
    """

    tool_call_id: CleanText = ""
    name: CleanText = ""
    content: Parts = ()
    is_error: bool = False
    is_interrupt: bool = False
    processed: Any = Field(default=None, exclude=True, repr=False)
    update: Any = Field(default=None, exclude=True, repr=False)
    display_text: CleanText | None = None

    def __init__(self, content: Content | None = (), **data: Any) -> None:
        super().__init__(content=content, **data)

    # A result that was saved and read again is the same result: what is local does not count.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        return self is other or all(getattr(self, name) == getattr(other, name) for name in _SAVED_OF_RESULT)

    def __hash__(self) -> int:
        return hash((self.tool_call_id, self.name, self.content, self.is_error))

    @property
    def text(self) -> str:
        """The joined text of the content."""
        return text_of(self.content)


_SAVED_OF_RESULT = tuple(name for name, field in ToolResult.model_fields.items() if not field.exclude)


def message_metadata(value: Any) -> FrozenDict:
    """Metadata as a message keeps it.

    Raises:
        ValueError: it is no JSON object.
    """
    return frozen_object(
        value,
        path="metadata",
        hint="message.replace(metadata={**message.metadata, 'key': …}) gives a changed copy",
    )


_NO_METADATA = message_metadata({})


class Message(Value):
    """One message of a conversation.

    Attributes:
        role: ``"user"``, ``"assistant"``, ``"tool"`` or ``"system"``.
        content: parts; a str becomes one `Text`. Of a tool message text at most: what tools answer is in `tool_results`.
        tool_calls: only of an assistant message.
        tool_results: only of a tool message, in the order of the calls.
        status: how the message ended. Tool calls of a message that is not ``"complete"`` are never run.
        usage: tokens the provider counted for it.
        metadata: JSON, local, never sent to the model.
    """

    role: Role
    content: Parts = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    status: MessageStatus = "complete"
    usage: Usage | None = None
    metadata: Annotated[dict[str, Any], PlainValidator(message_metadata)] = Field(default_factory=lambda: _NO_METADATA)

    def __init__(self, role: Role, content: Content | None = (), **data: Any) -> None:
        super().__init__(role=role, content=content, **data)

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        role = self.role
        if self.tool_calls and role != "assistant":
            raise ValueError(
                f"tool_calls in a message of role {role!r}: Message('assistant', …, tool_calls=…) has them"
            )
        if self.tool_results and role != "tool":
            raise ValueError(f"tool_results in a message of role {role!r}: Message('tool', tool_results=…) has them")
        if role == "tool" and not all(isinstance(part, Text) for part in self.content):
            raise ValueError(
                "the content of a tool message is text: pictures and files belong in its results, "
                "Message('tool', tool_results=[ToolResult([Image(…)], tool_call_id=…, name=…)])"
            )
        return self

    @property
    def text(self) -> str:
        """The joined text of the content."""
        return text_of(self.content)

    @property
    def is_tool_call(self) -> bool:
        """Whether its tools are to be run: a complete message of the assistant that calls some."""
        return self.role == "assistant" and self.status == "complete" and bool(self.tool_calls)

    @property
    def tool_had_errors(self) -> bool:
        """Whether a tool of a tool message failed."""
        return any(result.is_error for result in self.tool_results)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it: no content, no calls, no results."""
        return not (self.content or self.tool_calls or self.tool_results)


__all__ = [
    "Base64",
    "Content",
    "File",
    "Image",
    "JsonObject",
    "Message",
    "MessageStatus",
    "Part",
    "Parts",
    "Role",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Usage",
    "Value",
    "message_metadata",
    "text_of",
    "thaw",
]
