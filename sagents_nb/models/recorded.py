"""A model whose answers are written to a file once, and come from there ever after."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import logging
import os
import textwrap
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import SecretStr

from sagents_nb.deltas import Delta, StopDelta, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from sagents_nb.errors import ConfigurationError, ModelError, in_words
from sagents_nb.frozen import thaw
from sagents_nb.messages import Message, Usage
from sagents_nb.models.base import ChatModel, ModelRequest

logger = logging.getLogger("sagents_nb")

Mode: TypeAlias = Literal["record", "replay"]
End: TypeAlias = Literal["complete", "incomplete", "cancelled", "error"]

VERSION = 1
"""Of the format of a line."""

MASK = "[secret]"
"""What stands in the file in the place of a secret."""

_NEVER_WRITTEN = ("headers", "extra_headers", "extra_query", "api_key", "auth_token")
"""Options that may hold secrets; they are no part of what makes two requests the same either."""

_WRITING = threading.Lock()
"""One for all models of this process, several of which may record into one file."""

_DIFF_LINES = 40
"""Lines of a difference that an error shows at most."""

_DELTAS: dict[str, type[Any]] = {
    kind.type: kind for kind in (TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta, StopDelta)
}


class RecordedModel(ChatModel):
    """Records the answers of a model, or replays what was recorded.

    The file holds one JSON object a line: what was asked, every delta of the answer, and the error if there was one.
    A line is written when its answer has ended, in one piece, so that a process that is killed loses the answer it was
    waiting for and nothing else. Recording goes on at the end of a file that is there already; delete the file to
    begin anew.

    Two requests are the same when system prompt, messages, tools (name, description, schema), `tool_choice` and
    options are; ids of calls count by their order only, and what the model never sees (metadata, usage, status) not
    at all. The same request asked for the n-th time gets the n-th recorded answer. Every instance counts anew.

    Args:
        path: the file, for example ``"answers.jsonl"``.
        model: who is asked and recorded; without one the file is replayed.
        mode: ``"record"`` or ``"replay"``; by default what `model` says. With ``"replay"`` a model may stay in the
            notebook without being asked.
        secrets: further texts to keep out of the file, besides the keys the model knows. Headers never get into it.
        delay: seconds between two chunks of a replayed answer.

    Attributes:
        path: the file.
        model: who is recorded, if anybody.
        mode: what it does.

    Raises:
        ConfigurationError: there is nothing to record or nothing to replay, or the file is no recording.
    """

    provider = "recorded"

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: ChatModel | None = None,
        *,
        mode: Mode | None = None,
        secrets: Iterable[str | SecretStr] = (),
        delay: float = 0.0,
    ) -> None:
        if model is not None and not isinstance(model, ChatModel):
            raise ConfigurationError(
                f"RecordedModel(path, model) got {model!r}, a {type(model).__name__}; model is a ChatModel"
            )
        if isinstance(secrets, (str, SecretStr)):
            raise ConfigurationError("RecordedModel(secrets=…) takes a list of texts: secrets=['…']")
        if delay < 0:
            raise ConfigurationError(f"RecordedModel(delay=…) is a number of seconds, at least 0, got {delay}")
        mode = mode or ("replay" if model is None else "record")
        if mode not in ("record", "replay"):
            raise ConfigurationError(f"RecordedModel(mode=…) is 'record' or 'replay', got {mode!r}")
        self.path = Path(path)
        self.model = model
        self.mode: Mode = mode
        self.delay = delay
        self._secrets = tuple(s if isinstance(s, SecretStr) else SecretStr(s) for s in secrets)
        if mode == "record":
            if model is None:
                raise ConfigurationError(f"RecordedModel({str(path)!r}, mode='record') needs the model to record")
            if not self.path.parent.is_dir():
                raise ConfigurationError(f"RecordedModel cannot write {path}: there is no folder {self.path.parent}")
        elif not self.path.is_file():
            raise ConfigurationError(
                f"there is no recording {path}; make one with RecordedModel({str(path)!r}, AnthropicModel(…))"
            )
        records = _read(self.path) if self.path.is_file() else []
        self.name = model.name if model is not None else next((record.model for record in records), "recorded")
        if model is not None:
            self.provider = model.provider
        self._records: defaultdict[str, list[_Record]] = defaultdict(list)
        for record in sorted(records, key=lambda record: record.number):
            self._records[_fingerprint(record.request)].append(record)
        self._asked = Counter(
            {fingerprint: len(known) for fingerprint, known in self._records.items()} if mode == "record" else {}
        )
        self._lock = threading.Lock()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """See `ChatModel.stream`.

        Raises:
            ModelError: as recorded; ``"recording_mismatch"`` for a request that was not recorded, or not so often;
                ``"recording_failed"`` when the file cannot be written.
        """
        secrets = self._known_secrets(request)
        asked = _canonical(request, secrets)
        fingerprint = _fingerprint(asked)
        with self._lock:
            self._asked[fingerprint] += 1
            number = self._asked[fingerprint]
        deltas = (
            self._replay(fingerprint, number, asked)
            if self.mode == "replay" or self.model is None
            else self._record(self.model, request, _Record(asked, number, self.name), secrets)
        )
        try:
            async for delta in deltas:
                yield delta
        finally:
            await deltas.aclose()

    async def _record(
        self, model: ChatModel, request: ModelRequest, record: _Record, secrets: tuple[str, ...]
    ) -> AsyncGenerator[Delta]:
        if request.model is self:
            request = request.replace(model=model)
        deltas: list[Delta] = []
        end: End = "incomplete"
        stream = model.stream(request)
        try:
            async for delta in stream:
                deltas.append(delta)
                if isinstance(delta, StopDelta):
                    end = "complete"
                    break
                yield delta
        except Exception as error:
            self._write(record, secrets, deltas, "error", error)
            raise
        except BaseException:  # stopped, or nobody wants the rest
            try:
                self._write(record, secrets, deltas, "cancelled")
            except ModelError as failure:
                logger.warning("%s", failure)  # Stop is on its way, and nothing may hold it up
            raise
        finally:
            await _close(stream)
        # It is in the file before anybody goes on with it.
        self._write(record, secrets, deltas, end)
        if end == "complete":
            yield deltas[-1]

    async def _replay(self, fingerprint: str, number: int, asked: dict[str, Any]) -> AsyncGenerator[Delta]:
        known = self._records.get(fingerprint, [])
        if number > len(known):
            raise ModelError(self._mismatch(known, number, asked), type="recording_mismatch")
        record = known[number - 1]
        for count, delta in enumerate(record.deltas, 1):
            if self.delay:
                await asyncio.sleep(self.delay)
            elif count % 50 == 0:
                await asyncio.sleep(0)  # a long text must not keep the loop for itself
            yield _delta_from_json(delta)
        if record.error is not None:
            raise ModelError(**record.error)
        if record.end == "cancelled":
            raise ModelError(
                f"when {self.path} was recorded, this answer was cancelled here", type="recording_cancelled"
            )

    def _write(
        self,
        record: _Record,
        secrets: tuple[str, ...],
        deltas: list[Delta],
        end: End,
        failure: Exception | None = None,
    ) -> None:
        try:
            record.deltas = _masked_deltas(deltas, secrets)
            record.end = end
            record.error = None if failure is None else _masked(_error_to_json(failure), secrets)
            line = json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
            with _WRITING, self.path.open("a+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if size:
                    file.seek(size - 1)
                    if file.read(1) != b"\n":  # a process was killed while it wrote
                        line = b"\n" + line
                # In one piece: other processes may append to the same file.
                if file.write(line) != len(line):
                    raise OSError("the disk took only a part of it")
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(
                f"the answer of {self.name} cannot be recorded in {self.path}: {in_words(error)}",
                type="recording_failed",
            ) from error

    def _mismatch(self, same: list[_Record], number: int, asked: dict[str, Any]) -> str:
        if same:
            return (
                f"{self.path} has {len(same)} answer{'s' if len(same) > 1 else ''} to this request, and this is time "
                f"{number}. Make the RecordedModel anew to begin again, or record more: RecordedModel(path, model)"
            )
        records = [record for known in self._records.values() for record in known]
        if not records:
            return f"{self.path} is empty; record into it with RecordedModel(path, model)"
        lines = list(_lines(asked))
        likeness = difflib.SequenceMatcher(autojunk=False)
        likeness.set_seq2(lines)

        def alike(record: _Record) -> float:
            likeness.set_seq1(list(_lines(record.request)))
            return likeness.quick_ratio()

        nearest = max(records, key=alike)
        changed = [part for part in asked if asked[part] != nearest.request.get(part)]
        difference = list(
            difflib.unified_diff(list(_lines(nearest.request)), lines, "recorded", "asked", n=1, lineterm="")
        )
        if len(difference) > _DIFF_LINES:
            difference[_DIFF_LINES:] = [f"… {len(difference) - _DIFF_LINES} more lines"]
        return (
            f"{self.path} has no answer to this request. Compared with the nearest that was recorded, something else is "
            f"in: {', '.join(changed)}.\n" + "\n".join(difference) + "\nRecord it with RecordedModel(path, model)"
        )

    def _known_secrets(self, request: ModelRequest) -> tuple[str, ...]:
        texts = {secret.get_secret_value() for secret in self.secrets()} - {""}
        for key in ("headers", "extra_headers"):
            texts |= {str(value) for value in dict(request.options.get(key) or {}).values() if len(str(value)) >= 8}
        texts |= {json.dumps(text)[1:-1] for text in texts}  # as it stands in the arguments of a call
        return tuple(sorted(texts, key=len, reverse=True))

    def secrets(self) -> tuple[SecretStr, ...]:
        """See `ChatModel.secrets`."""
        return (*self._secrets, *(self.model.secrets() if self.model is not None else ()))

    def retry_on_fallback(self, error: ModelError) -> bool:
        """See `ChatModel.retry_on_fallback`; the model that is recorded decides."""
        return super().retry_on_fallback(error) if self.model is None else self.model.retry_on_fallback(error)

    async def aclose(self) -> None:
        """See `ChatModel.aclose`."""
        if self.model is not None:
            await self.model.aclose()

    def __repr__(self) -> str:
        answers = sum(len(known) for known in self._records.values())
        what = repr(self.model) if self.mode == "record" else f"{answers} answer{'' if answers == 1 else 's'}"
        return f"RecordedModel({str(self.path)!r}, {self.mode}: {what})"


# -- lines of the file ----------------------------------------------------------------------------


@dataclass
class _Record:
    """One line.

    Attributes:
        request: what was asked, in its canonical form.
        number: how often that had been asked then, this time included.
        model: who answered.
        deltas: what came, as JSON.
        end: how it ended; ``"incomplete"`` is an end without a StopDelta.
        error: of the model, as JSON.
    """

    request: dict[str, Any]
    number: int
    model: str
    deltas: list[dict[str, Any]] = field(default_factory=list)
    end: End = "incomplete"
    error: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **{key: value for key, value in vars(self).items() if value is not None}}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> _Record:
        """Read a line.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: it is none.
        """
        record = cls(**{key: value for key, value in data.items() if key != "version"})
        if not isinstance(record.request, dict) or type(record.number) is not int or not isinstance(record.model, str):
            raise ValueError("no answer of a model")
        for delta in record.deltas:
            _delta_from_json(delta)
        if record.error is not None:
            ModelError(**record.error)
        return record


def _read(path: Path) -> list[_Record]:
    records: list[_Record] = []
    unreadable: list[int] = []
    lines = path.read_bytes().split(b"\n")
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            version = data.get("version", VERSION)
            if isinstance(version, int) and version > VERSION:
                raise ConfigurationError(
                    f"{path} was recorded by a newer sagents-nb (version {version} in line {place}; this one reads up "
                    f"to {VERSION}); upgrade sagents-nb"
                )
            records.append(_Record.from_json(data))
        except ConfigurationError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError):
            unreadable.append(place)
    if unreadable and not records:
        raise ConfigurationError(f"{path} is no recording: its line {unreadable[0]} is not an answer of a model")
    for place in unreadable:
        last = place == len(lines)
        why = "is cut off, as if a process had been killed while it wrote" if last else "cannot be read"
        warnings.warn(f"line {place} of the recording {path} {why}; it is left out", stacklevel=3)
    return records


# -- what makes two requests the same -------------------------------------------------------------


def _canonical(request: ModelRequest, secrets: tuple[str, ...]) -> dict[str, Any]:
    """What the model sees of a request, as JSON; ids of calls by the order of their appearance."""
    ids: dict[str, str] = {}
    options = {key: thaw(value) for key, value in request.options.items() if key not in _NEVER_WRITTEN}
    canonical = {
        "system": request.system,
        "messages": [_message(message, ids) for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": thaw(dict(tool.input_schema))}
            for tool in request.tools
        ],
        "tool_choice": request.tool_choice,
        # Options are the provider's; what is no JSON among them is told apart by its repr.
        "options": json.loads(json.dumps(options, default=repr, sort_keys=True)),
    }
    masked: dict[str, Any] = _masked(canonical, secrets)
    return masked


def _message(message: Message, ids: dict[str, str]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    calls = []
    for call in message.tool_calls:
        # A call is a new one, also where a model uses an id again.
        ids[call.id] = f"call {len(ids) + 1}" if call.id not in ids else f"{ids[call.id]}'"
        wrong = {} if call.invalid_arguments is None else {"invalid_arguments": call.invalid_arguments}
        calls.append({"id": ids[call.id], "name": call.name, "arguments": thaw(call.arguments), **wrong})
    if calls:
        said["tool_calls"] = calls
    if message.tool_results:
        said["tool_results"] = [
            {
                "tool_call_id": ids.get(result.tool_call_id, "no call"),
                "content": _content(result.content),
                "is_error": result.is_error,
            }
            for result in message.tool_results
        ]
    return said


def _content(parts: Iterable[Any]) -> list[dict[str, Any]]:
    content = []
    for part in parts:
        told = part.to_json()
        if told.get("data"):  # megabytes of an image are told apart by their hash
            told["data"] = "sha256:" + hashlib.sha256(told["data"].encode()).hexdigest()
        content.append(told)
    return content


def _fingerprint(canonical: Mapping[str, Any]) -> str:
    text = json.dumps(canonical, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _lines(canonical: Mapping[str, Any]) -> Iterator[str]:
    """A request in lines that a difference can be read in: long texts are broken."""
    for line in json.dumps(canonical, indent=1, ensure_ascii=False).splitlines():
        for piece in line.split("\\n"):
            yield from textwrap.wrap(piece, 100, drop_whitespace=False, replace_whitespace=False) or [""]


# -- secrets --------------------------------------------------------------------------------------


def _masked(value: Any, secrets: tuple[str, ...]) -> Any:
    """JSON without the secrets, wherever they stand in it."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, Mapping):
        return {_masked(key, secrets): _masked(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(item, secrets) for item in value]
    return value


def _masked_deltas(deltas: Iterable[Delta], secrets: tuple[str, ...]) -> list[dict[str, Any]]:
    """Deltas as JSON; a secret is found also where it comes in pieces."""
    told = [_delta_to_json(delta) for delta in deltas]
    pieces: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for delta in told:
        for key in ("text", "arguments"):
            if key in delta:
                pieces[delta["index"], key].append(delta)
    for (_, key), of_block in pieces.items():
        whole = "".join(delta[key] for delta in of_block)
        if any(secret in whole for secret in secrets):
            of_block[0][key] = whole
            for delta in of_block[1:]:
                delta[key] = ""
    masked: list[dict[str, Any]] = _masked(told, secrets)
    return masked


# -- JSON of deltas and errors --------------------------------------------------------------------


def _delta_to_json(delta: Delta) -> dict[str, Any]:
    match delta:
        case UsageDelta():
            return {"type": delta.type, "usage": delta.usage.to_json()}
        case StopDelta():
            return {"type": delta.type, "status": delta.status, "metadata": thaw(delta.metadata)}
    if type(delta) not in _DELTAS.values():
        raise ValueError(f"the model streamed {delta!r}, which is not one of the deltas of sagents_nb.models")
    return {"type": delta.type, **{key: value for key, value in asdict(delta).items() if value is not None}}


def _delta_from_json(data: Mapping[str, Any]) -> Delta:
    fields = {key: value for key, value in data.items() if key != "type"}
    if data["type"] == UsageDelta.type:
        fields["usage"] = Usage.from_json(fields["usage"])
    delta: Delta = _DELTAS[data["type"]](**fields)
    return delta


def _error_to_json(error: Exception) -> dict[str, Any]:
    if not isinstance(error, ModelError):
        return {"type": "model_error", "message": f"{type(error).__name__}: {in_words(error)}"}
    told = {
        "type": error.type,
        "message": error.message,
        "retryable": error.retryable,
        "retry_after": error.retry_after,
        "status_code": error.status_code,
        "request_id": error.request_id,
    }
    return {key: value for key, value in told.items() if value is not None}


async def _close(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
