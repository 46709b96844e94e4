"""Turns pydantic's errors into problems that name the field, the value and the fix."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from backfill.api.errors import Problem
from backfill.api.field_types import (
    CATALOG_NAME_PATTERN,
    INPUT_NAME_PATTERN,
    NAME_PATTERN,
    TABLE_NAME_PATTERN,
)
from backfill.api.output import PERCENTAGE_PATTERN, TOLERANCE_PATTERN
from backfill.api.pods import MEMORY_PATTERN
from backfill.api.workspace_locations import LOCATION_FORM, LOCATION_PATTERN

Location = Sequence[int | str]
_Model = TypeVar("_Model", bound=BaseModel)

FORMS = {
    NAME_PATTERN: "use at most 63 lower-case letters, digits and '-'",
    INPUT_NAME_PATTERN: "use at most 63 letters, digits, '-', '_' and '.'",
    CATALOG_NAME_PATTERN: (
        "use at most 63 ASCII letters and digits, with single '-' or '_' between them"
    ),
    TABLE_NAME_PATTERN: (
        "write it as catalog.namespace.table, with a catalog name of ASCII letters and digits"
    ),
    MEMORY_PATTERN: "use Spark's notation, for example 4g",
    LOCATION_PATTERN: LOCATION_FORM,
    PERCENTAGE_PATTERN: 'write a percentage from 0 to 100, for example "99.9"',
    TOLERANCE_PATTERN: 'use a number, for example "0.01", or a duration, for example 5s',
}
"""What to write, by the pattern that a value has to match."""
_SHOWN_CHARACTERS = 60
_ONLY_KEYS = {"publish": "mode", "applicationRef": "name", "ordering": "policy", "handOff": "to"}
"""The field that a single value is meant for, where a mapping is required."""
_PLAIN_KEY = re.compile(r"[\w-]+", re.ASCII)


def read_json(model: type[_Model], value: JsonValue) -> _Model:
    """Reads a model from JSON values, as strictly as Kubernetes does.

    Text is not accepted for numbers, and fields only under their names in manifests.

    Raises:
        ValidationError: the values are invalid; :func:`problems_of` describes why.
    """
    return model.model_validate_json(json.dumps(value), strict=True, by_alias=True, by_name=False)


def problems_of(
    error: ValidationError, model: type[BaseModel], prefix: Location = ()
) -> list[Problem]:
    """Every problem that pydantic found in the data for ``model``, in the order it reports them.

    ``prefix`` is the path of the data in its manifest.
    """
    details = error.errors(include_url=False)
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    misspelled = {
        (*place, _nearest(str(name), _fields_at(model, place))) for *place, name in unknown
    }
    return [
        _problem(detail, model, prefix)
        for detail in details
        if not _is_consequence(detail)
        and not (detail["type"] == "missing" and detail["loc"] in misspelled)
    ]


def field_path(location: Location) -> str:
    """A path of keys and indexes in the form that kubectl prints.

    Examples: ``spec.sources[0].table``, ``spec.overrides.sparkConf[spark.sql.ansi.enabled]``.
    """
    path = ""
    for part in location:
        if isinstance(part, int) or not _PLAIN_KEY.fullmatch(part):
            path += f"[{part}]" if str(part).isprintable() else f"[{json.dumps(part)}]"
        else:
            path += f".{part}" if path else part
    return path


def shown(value: object) -> str:
    """A value in JSON, shortened if it is long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Advice with the most similar choice; empty if none is similar."""
    near = _nearest(word, choices)
    return f"did you mean {near}?" if near else ""


def _nearest(word: str, choices: Iterable[str]) -> str | None:
    by_lower_case = {choice.lower(): choice for choice in choices}
    near = get_close_matches(word.lower().replace("_", ""), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[near[0]] if near else None


def _is_consequence(detail: ErrorDetails) -> bool:
    """Whether a list is reported as too short only because some of its items are invalid."""
    given = detail["input"]
    return (
        detail["type"] == "too_short"
        and isinstance(given, Sequence)
        and len(given) >= detail["ctx"]["min_length"]
    )


def _problem(detail: ErrorDetails, model: type[BaseModel], prefix: Location) -> Problem:
    location = detail["loc"]
    explain = _EXPLANATIONS.get(detail["type"])
    message, fix = explain(detail, model) if explain else _as_pydantic_says(detail)
    return Problem(field_path((*prefix, *location)), message, fix)


def _as_pydantic_says(detail: ErrorDetails) -> tuple[str, str]:
    text = detail["msg"].removeprefix("Value error, ")
    message, _, fix = text.partition(" after validation")[0].partition("; ")
    for subject in ("Input ", "String ", "Tuple ", "Dictionary "):
        message = message.removeprefix(subject)
    given = detail["input"]
    return (f"{shown(given)} {message}" if not isinstance(given, Mapping) else message), fix


def _missing(detail: ErrorDetails, _model: type[BaseModel]) -> tuple[str, str]:
    return "is missing", f"add {detail['loc'][-1]}" if detail["loc"] else ""


def _unknown(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    fields = _fields_at(model, detail["loc"][:-1])
    advice = did_you_mean(str(detail["loc"][-1]), fields)
    return "is not a known field", advice or (
        f"known fields: {', '.join(fields)}" if fields else "remove it"
    )


def _not_a_choice(detail: ErrorDetails, _model: type[BaseModel]) -> tuple[str, str]:
    given, expected = detail["input"], detail["ctx"]["expected"].replace("'", "")
    advice = (
        did_you_mean(given, expected.replace(" or ", ", ").split(", "))
        if isinstance(given, str)
        else ""
    )
    if " or " not in expected:
        return f"{shown(given)} is not supported", f"use {expected}"
    if advice:
        return f"{shown(given)} is not one of {expected}", advice
    return f"{shown(given)} is not a known value", f"use one of {expected}"


def _not_text(detail: ErrorDetails, _model: type[BaseModel]) -> tuple[str, str]:
    given = detail["input"]
    if isinstance(given, bool):
        return (
            f"{shown(given)} is a boolean, not a string",
            "put the value in quotes",
        )
    if isinstance(given, int | float):
        return f"{shown(given)} is a number, not a string", f'put it in quotes: "{given}"'
    return f"{shown(given)} is not a string", "use a string"


def _other_type(wanted: str) -> Callable[[ErrorDetails, type[BaseModel]], tuple[str, str]]:
    def explain(detail: ErrorDetails, _model: type[BaseModel]) -> tuple[str, str]:
        given = detail["input"]
        if given is None:
            return (
                f"is empty; {wanted} is required",
                f"set {wanted}, or remove the field if it is optional",
            )
        return f"{shown(given)} is not {wanted}", _in_form(wanted, given, detail["loc"])

    return explain


def _in_form(wanted: str, given: object, location: Location) -> str:
    """How a value of another type is written."""
    if wanted == "a list" and isinstance(given, str):
        return f"write [{given}]"
    if wanted == "a mapping":
        key = _ONLY_KEYS.get(str(location[-1])) if location else None
        return f"write {{{key}: {given}}}" if key and isinstance(given, str) else f"use {wanted}"
    return "remove the quotes" if isinstance(given, str) else f"use {wanted}"


def _wrong_form(detail: ErrorDetails, _model: type[BaseModel]) -> tuple[str, str]:
    pattern = detail["ctx"]["pattern"]
    return f"{shown(detail['input'])} does not have the required format", FORMS.get(
        pattern, f"use a value that matches {pattern}"
    )


_EXPLANATIONS: dict[str, Callable[[ErrorDetails, type[BaseModel]], tuple[str, str]]] = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "literal_error": _not_a_choice,
    "enum": _not_a_choice,
    "string_type": _not_text,
    "int_type": _other_type("a whole number"),
    "float_type": _other_type("a number"),
    "bool_type": _other_type("true or false"),
    "tuple_type": _other_type("a list"),
    "dict_type": _other_type("a mapping"),
    "model_type": _other_type("a mapping"),
    "string_pattern_mismatch": _wrong_form,
}


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    """The names, in manifests, of the fields at a path in a model."""
    here: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, str) and here is not None:
            annotations = {
                field.alias or name: field.annotation for name, field in here.model_fields.items()
            }
            here = _model_in(annotations.get(part))
    return [field.alias or name for name, field in here.model_fields.items()] if here else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model within an annotation such as ``tuple[Source, ...]`` or ``Live | None``."""
    if (
        isinstance(annotation, type)
        and not get_origin(annotation)
        and issubclass(annotation, BaseModel)
    ):
        return annotation
    arguments = (
        get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    )
    return next((found for argument in arguments if (found := _model_in(argument))), None)
