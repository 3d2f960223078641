"""Base of the immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict


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

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form: dicts, lists, strings, numbers; `from_json` is its inverse."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Self:
        """Read what `to_json` gave, as a dict or as JSON text.

        Raises:
            ValueError: it is not that; mostly a pydantic.ValidationError that names the places.
        """
        try:
            return cls.model_validate_json(data) if isinstance(data, str) else cls.model_validate(data)
        except TypeError as error:  # something lacks what its class takes by position
            raise ValueError(f"this is not the JSON form of a {cls.__name__}: {error}") from error
