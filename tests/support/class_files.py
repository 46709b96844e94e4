"""Reads from the class files of installed jars what classes have, without Java.

The format is that of chapter 4 of the Java Virtual Machine Specification.
"""

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyspark

_JARS = Path(pyspark.__file__).parent / "jars"
_UTF8, _TWO_PLACES = 1, (5, 6)
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}
_SIZES |= {19: 2, 20: 2}
"""Bytes of a constant by its kind, after the byte that says which; of text, its length comes first.
"""
_PUBLIC = 1


@dataclass(frozen=True)
class ClassFile:
    """A class or an interface."""

    parents: tuple[str, ...]
    """Full names of the class that it extends and of the interfaces."""
    methods: tuple[tuple[str, int], ...]
    """Names of its public methods, each with the number of arguments; ``<init>`` makes an object."""


def arguments_of(name: str, method: str) -> set[int] | None:
    """With how many arguments a class's method can be called, also by inheritance; None if there is
    no such class.
    """
    found = _read(name)
    if found is None:
        return None
    numbers = {count for each, count in found.methods if each == method}
    for parent in found.parents if method != "<init>" else ():
        numbers |= arguments_of(parent, method) or set()
    return numbers


@cache
def _places() -> dict[str, Path]:
    """The jar that has a class, by the class's full name."""
    places: dict[str, Path] = {}
    for jar in sorted(_JARS.glob("*.jar")):
        if jar.name.startswith(("spark-", "scala-library", "commons-io", "hadoop-client-api")):
            with zipfile.ZipFile(jar) as archive:
                for name in archive.namelist():
                    if name.endswith(".class"):
                        places.setdefault(name.removesuffix(".class").replace("/", "."), jar)
    return places


@cache
def _read(name: str) -> ClassFile | None:
    jar = _places().get(name)
    if jar is None:
        return None
    with zipfile.ZipFile(jar) as archive:
        return _parsed(archive.read(f"{name.replace('.', '/')}.class"))


def _parsed(data: bytes) -> ClassFile:
    texts, classes, at = _constants(data)
    _, _, parent, interfaces = struct.unpack_from(">4H", data, at)
    numbers = struct.unpack_from(f">{interfaces}H", data, at + 8)
    at += 8 + 2 * interfaces
    _, at = _members(data, at, texts)
    methods, _ = _members(data, at, texts)
    parents = (texts[classes[each]].replace("/", ".") for each in (parent, *numbers) if each)
    public = ((name, _count(kind)) for access, name, kind in methods if access & _PUBLIC)
    return ClassFile(tuple(parents), tuple(public))


def _constants(data: bytes) -> tuple[dict[int, str], dict[int, int], int]:
    """The texts among a class's constants, by their numbers; of its classes, the numbers of their
    names; and where the constants end.
    """
    (count,) = struct.unpack_from(">H", data, 8)
    texts, classes, at, number = dict[int, str](), dict[int, int](), 10, 1
    while number < count:
        kind, at = data[at], at + 1
        if kind == _UTF8:
            (length,) = struct.unpack_from(">H", data, at)
            texts[number] = data[at + 2 : at + 2 + length].decode(errors="replace")
            at += 2 + length
        else:
            if kind == 7:  # a class
                (classes[number],) = struct.unpack_from(">H", data, at)
            at += _SIZES[kind]
        number += 2 if kind in _TWO_PLACES else 1
    return texts, classes, at


def _members(data: bytes, at: int, texts: dict[int, str]) -> tuple[list[tuple[int, str, str]], int]:
    (count,) = struct.unpack_from(">H", data, at)
    found, at = [], at + 2
    for _ in range(count):
        access, name, kind, attributes = struct.unpack_from(">4H", data, at)
        at += 8
        for _ in range(attributes):
            (length,) = struct.unpack_from(">I", data, at + 2)
            at += 6 + length
        found.append((access, texts[name], texts[kind]))
    return found, at


def _count(descriptor: str) -> int:
    """The number of arguments that a method's descriptor has."""
    return sum(1 for _ in _arguments(descriptor[1 : descriptor.index(")")]))


def _arguments(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        begun = at
        while text[at] == "[":
            at += 1
        at = text.index(";", at) + 1 if text[at] == "L" else at + 1
        yield text[begun:at]
