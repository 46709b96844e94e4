"""Numbers of a plan's steps, in a fifth of the memory of a tuple: the operator holds those of all
plans.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, overload

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

MOST_STEPS: Final = 1_000_000
"""Of a plan. Planning makes fewer, and extends them at most a few times."""


class Numbers(Sequence[int]):
    """Whole numbers of 64 bits, eight bytes each. Equal to any sequence of the same numbers."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._numbers = array("q", numbers)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> "Numbers": ...
    def __getitem__(self, index: int | slice) -> "int | Numbers":
        """The number of a step, or those of several."""
        if isinstance(index, slice):
            return Numbers(self._numbers[index])
        return self._numbers[index]

    def __len__(self) -> int:
        """Number of steps."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        """The numbers, by step."""
        return iter(self._numbers)

    def __eq__(self, other: object) -> bool:
        """Whether the other has the same numbers."""
        if isinstance(other, Numbers):
            return self._numbers == other._numbers
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """As that of a tuple."""
        return hash(tuple(self._numbers))

    def __repr__(self) -> str:
        """As that of a tuple."""
        return repr(tuple(self._numbers))


class _Compact:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = core_schema.int_schema(ge=-(2**63), lt=2**63)
        listed = core_schema.no_info_after_validator_function(
            Numbers, core_schema.list_schema(number, max_length=MOST_STEPS, fail_fast=True)
        )
        return core_schema.json_or_python_schema(
            listed,
            core_schema.union_schema([core_schema.is_instance_schema(Numbers), listed]),
            serialization=core_schema.plain_serializer_function_ser_schema(list),
        )


StepNumbers = Annotated[Sequence[int], _Compact]
"""A field with a number for each step."""
