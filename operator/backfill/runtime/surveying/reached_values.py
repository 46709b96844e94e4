"""What a function of ``foreachBatch`` refers to. Nothing is called: only what is known before the
function runs is looked at.
"""

import functools
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

_MOST_PARTS = 64
"""Parts that a list or a mapping may have: a larger one is data."""
_LIBRARIES = {"py4j", "pyspark"}
_BUILT_IN = (GetSetDescriptorType, MemberDescriptorType)
_FOREIGN = _LIBRARIES | sys.stdlib_module_names
"""Modules whose classes have no texts of the program."""
_TEXTS = (str, tuple, list, set, frozenset, dict)
"""What may be or have texts."""


def reached(function: Any) -> Iterator[Any]:
    """What a function and those within it refer to, each once: texts, modules, and functions of its
    own module; in their code and defaults, in their module and in the functions around them; also
    in the arguments of a partial function, and in the attributes and methods of an object and of
    its base classes.
    """
    seen: dict[int, Any] = {}
    pending = [*_reversed(_of_object(function)), function]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that nothing else has its identity
        yield value
        if not _is(value, str):
            pending += _reversed(_parts(value))  # so that the first is the next


def _reversed(values: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    with suppress(Exception):  # of the program's own kinds of lists and mappings
        found.extend(values)
    return found[::-1]


def _is(value: Any, *kinds: type) -> bool:
    """Like ``isinstance``, without asking the value: a proxy may raise anything."""
    return issubclass(type(value), kinds)


def _parts(value: Any) -> Iterator[Any]:
    """What a value refers to that may be a text or lead to one."""
    if _top(value.__module__ if _is(value, FunctionType) else type(value)) in _LIBRARIES:
        return
    if _is(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
        yield from _of_object(value.func)
    elif _is(value, MethodType):
        yield value.__func__
        yield from _of_object(value.__self__)
    elif _is(value, FunctionType):
        yield from _of_function(value)
    elif _is(value, dict, tuple, list, set, frozenset):
        if len(value) <= _MOST_PARTS:
            yield from value
            yield from value.values() if _is(value, dict) else ()
    elif not _is(value, type, ModuleType):
        yield from _attributes(_own(value))


def _top(of: Any) -> str:
    """The top-level module of a name of a module, or of a class."""
    return str(vars(of).get("__module__") if _is(of, type) else of).partition(".")[0]


def _of_object(value: Any) -> Iterator[Any]:
    """The attributes and methods of an object that is called, or whose method is, and the functions
    that it keeps, as a decorator does.
    """
    if _is(value, FunctionType, MethodType, functools.partial, type):
        return
    kinds = [each for each in type(value).__mro__ if _top(each) not in _FOREIGN]
    for kind in kinds:
        for name, method in vars(kind).items():
            if _is(method, FunctionType) and (name == "__call__" or not _is_special(name)):
                yield method
    for values in (*map(vars, kinds), own := _own(value)):
        yield from _attributes(values)
    for name, kept in own.items():
        if _is(kept, FunctionType, MethodType, functools.partial) and (
            name == "__wrapped__" or not _is_special(name)
        ):
            yield kept


def _own(value: Any) -> Mapping[str, Any]:
    """The attributes of an object itself, without calling anything of its own."""
    for kind in type(value).__mro__:
        found = vars(kind).get("__dict__")
        if found is not None:
            return found.__get__(value) if _is(found, *_BUILT_IN) else {}
    return {}


def _attributes(values: Mapping[str, Any]) -> Iterator[Any]:
    """The texts among attributes: objects may lead anywhere."""
    for name, value in values.items():
        if not _is_special(name) and _is(value, *_TEXTS):
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
        pending += (each for each in code.co_consts if _is(each, CodeType))
        yield from (each for each in code.co_consts if _is(each, str, tuple, frozenset))
        value: Any
        for value in map(module.get, code.co_names):
            if not _is(value, FunctionType) or value.__globals__ is module:
                yield value
