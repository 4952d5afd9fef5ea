"""The base of every configuration section: unknown keys are refused, values are checked."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Node = Annotated[
    str | None,
    Field(
        description="Where the processes run in a cluster of several nodes: a node's address as "
        "``ray status`` shows it, or one of its custom resources; null: anywhere."
    ),
]


class Section(BaseModel):
    """A frozen section; a misspelt key is an error instead of a setting without effect."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _values_are_plain(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse NUL, huge integers, and ``true`` for a number, which pydantic reads as 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            return value  # it checks its own fields
        leaves = _leaves(value)
        if any(isinstance(leaf, str) and "\x00" in leaf for leaf in leaves):
            raise ValueError("it contains a NUL character: remove it")
        for leaf in leaves:
            if isinstance(leaf, str) and leaf.startswith("~") and "/" in leaf:
                raise ValueError(
                    f"{leaf} would be a directory named {leaf.split('/')[0]}, since no shell "
                    "expands it there: write your home directory out"
                )
        if any(isinstance(leaf, int) and abs(leaf) >= 2**63 for leaf in leaves):
            raise ValueError("it is beyond 64 bits: lower it")
        types = _types(annotation)
        if Any in types and any(isinstance(v, float) and not math.isfinite(v) for v in leaves):
            raise ValueError("it is not finite: write a number")
        if types & {int, float} and not types & {bool, Any} and bool in map(type, leaves):
            raise ValueError("it is a boolean where a number is expected: write the number")
        return value

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if misfit := next(self._misfits(), ""):
            raise ValueError(misfit)
        return self

    def _misfits(self) -> Iterator[str]:
        """Why settings do not go together, each acceptable alone: problem, colon, remedy."""
        yield from ()


def _leaves(value: Any) -> list[Any]:
    """The scalars of a value; keys of mappings are checked with their own fields."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _types(annotation: Any) -> set[Any]:
    """All types that an annotation names."""
    parts = get_args(annotation)
    if not parts:
        return {annotation} if isinstance(annotation, type) or annotation is Any else set()
    return set().union(*map(_types, parts))
