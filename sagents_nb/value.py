"""Base of the immutable values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

FORMAT_VERSION = 1
"""Version of the JSON form of every value; `Value.from_json` refuses newer ones."""

_set = object.__setattr__


class Value(BaseModel):
    """Base of the immutable values: unknown keywords are errors, attributes cannot be set."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    if TYPE_CHECKING:  # subclasses with a signature of their own pass keywords on

        def __init__(self, **data: Any) -> None: ...

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new one.

        Args:
            **changes: new values by field name.

        Raises:
            pydantic.ValidationError: a field is unknown or a value does not fit.
        """
        return self.__class__.model_validate({**self.__dict__, **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, not checked: for those who know that they fit.

        Does what pydantic's does for a value without extras and private attributes, at an eighth of its cost; the loop
        makes a State for every message.

        Args:
            update: new values by field name.
            deep: whether what the fields hold is copied too.
        """
        if deep or self.__pydantic_private__ is not None:
            return super().model_copy(update=update, deep=deep)
        changes = update or {}
        copy = object.__new__(type(self))
        _set(copy, "__dict__", {**self.__dict__, **changes})
        _set(copy, "__pydantic_fields_set__", self.__pydantic_fields_set__ | changes.keys())
        _set(copy, "__pydantic_extra__", None)
        _set(copy, "__pydantic_private__", None)
        return copy

    def to_json(self, *, nested: bool = False) -> dict[str, Any]:
        """Plain JSON form: dicts, lists, strings, numbers; `from_json` is its inverse.

        Args:
            nested: leave the version out, as inside of another JSON form that says it already.

        Returns:
            The fields that are not at their defaults, after ``"version"``.
        """
        data = self.model_dump(mode="json", exclude_defaults=True)
        return data if nested else {"version": FORMAT_VERSION, **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Self:
        """Read what `to_json` gave, with its version or without, as a dict or as JSON text.

        Raises:
            ValueError: it was written by a newer version of the toolkit, or is not such a value; mostly a
                pydantic.ValidationError that names the places.
        """
        name = cls.__name__
        try:
            if isinstance(data, str):
                data = json.loads(data)
            if not isinstance(data, Mapping):
                raise ValueError(f"the JSON of a {name} is an object, this is a {type(data).__name__}")
            version = data.get("version", FORMAT_VERSION)
            if not isinstance(version, int) or version > FORMAT_VERSION:
                raise ValueError(
                    f"this {name} has the format version {version!r}, newer than the {FORMAT_VERSION} this sagents_nb "
                    "knows: pip install --upgrade sagents-nb"
                )
            return cls.model_validate({key: value for key, value in data.items() if key != "version"})
        except TypeError as error:  # something lacks what its class takes by position
            raise ValueError(f"this is not the JSON form of a {name}: {error}") from error
        except RecursionError:
            raise ValueError(f"this is not the JSON form of a {name}: it is nested too deeply") from None
