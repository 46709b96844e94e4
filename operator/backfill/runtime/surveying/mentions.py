"""The texts of a function of ``foreachBatch``, which may name the tables that it writes.

Nothing is called: only what is known before the function runs is looked at.
"""

import functools
from collections.abc import Iterator, Mapping
from itertools import chain
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_MOST_PARTS = 64
"""Parts that a list or a mapping may have: a larger one is data."""
_LIBRARIES = {"py4j", "pyspark"}
_TEXTS = (str, tuple, list, set, frozenset, dict)
"""What may be or have texts."""


def mentioned(function: Any) -> Iterator[str]:
    """Words in the texts of a function and of those within it: in their code and defaults, and in
    what they refer to in their module and in the functions around them; also in the arguments of a
    partial function, and in the attributes and methods of an object.
    """
    seen: dict[int, Any] = {}
    pending = [*_reversed(_of_object(function)), function]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that nothing else has its identity
        if isinstance(value, str):
            yield from (word.strip("`'\"(),;") for word in value.split())
        else:
            pending += _reversed(_parts(value))  # so that the first is the next


def _reversed(values: Iterator[Any]) -> list[Any]:
    return list(values)[::-1]


def _parts(value: Any) -> Iterator[Any]:
    """What a value refers to that may be a text or lead to one."""
    if str(getattr(value, "__module__", "")).partition(".")[0] in _LIBRARIES:
        return
    match value:
        case functools.partial():
            yield from (value.func, *value.args, *value.keywords.values())
            yield from _of_object(value.func)
        case MethodType():
            yield value.__func__
            yield from _of_object(value.__self__)
        case FunctionType():
            yield from _of_function(value)
        case dict() if len(value) <= _MOST_PARTS:
            yield from chain(value.keys(), value.values())
        case tuple() | list() | set() | frozenset() if len(value) <= _MOST_PARTS:
            yield from value
        case type() | ModuleType() | dict() | tuple() | list() | set() | frozenset():
            return
        case _:
            yield from _attributes(getattr(value, "__dict__", {}))


def _of_object(value: Any) -> Iterator[Any]:
    """The attributes and methods of an object that is called, or whose method is."""
    if isinstance(value, FunctionType | MethodType | functools.partial | type):
        return
    for name, method in vars(type(value)).items():
        if isinstance(method, FunctionType) and (name == "__call__" or not _is_special(name)):
            yield method
    yield from _attributes(vars(type(value)))
    yield from _attributes(getattr(value, "__dict__", {}))


def _attributes(values: Mapping[str, Any]) -> Iterator[Any]:
    """The texts among attributes: objects may lead anywhere."""
    for name, value in values.items():
        if not _is_special(name) and isinstance(value, _TEXTS):
            yield value


def _is_special(name: str) -> bool:
    return name.startswith("__")


def _of_function(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    module, pending = function.__globals__, [function.__code__]
    while pending:
        code = pending.pop()
        pending += (each for each in code.co_consts if isinstance(each, CodeType))
        yield from (each for each in code.co_consts if isinstance(each, str | tuple | frozenset))
        for value in map(module.get, code.co_names):
            if not isinstance(value, FunctionType) or value.__globals__ is module:
                yield value
