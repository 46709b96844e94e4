"""The structural OpenAPI schema of a resource, generated from its model so that both accept the
same manifests.

References and nulls are resolved. Every string, list and map has a bound, which the API server
needs to estimate the cost of CEL rules, and every field has a description. Two choices need a
reason:

* Nothing is defaulted within lists. GitOps tools compare a list as a whole, so fields that the API
  server added to its items would be reported as drift forever. Descriptions name the defaults, and
  the models apply them.
* Condition types and reasons are open strings: a definition older than the operator must not refuse
  its status.
"""

import ast
import inspect
from itertools import pairwise
from textwrap import dedent
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from backfill.api.backfill import Backfill
from backfill.api.base import Model
from backfill.api.field_types import NAME_PATTERN
from backfill.api.forbidden_changes import ADJUSTABLE_FIELDS, MUTABLE_FIELDS, MUTABLE_IN_OUTPUTS
from backfill.crd.cel_rules import RULES

Schema = dict[str, Any]

_KEPT: Final = (
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-validations",
)
_FORMATS: Final = {"integer": "int64", "number": "double"}
_WORD: Final = {"type": "string", "maxLength": 128, "pattern": "^[A-Za-z][A-Za-z0-9]*$"}
_OPEN: Final = {"ConditionType": _WORD, "Reason": _WORD}
_KEYS: Final = ("name", "type", "number")
_MOST_UNKNOWN_FIELDS: Final = 128


class IncompleteModelError(TypeError):
    """A string, list or map of a model has no bound, or a field has no description; the message
    names it.
    """


def schema_of(model: type[Model]) -> Schema:
    """The structural schema of a resource.

    Raises:
        IncompleteModelError: a field lacks a bound or a description.
    """
    source = described(model)
    convert = _Converter(source["$defs"])
    fields = source["properties"]
    name = {"type": "string", "maxLength": 63, "pattern": NAME_PATTERN}
    schema: Schema = {
        "type": "object",
        "description": _plain(source["description"]),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": fields["apiVersion"]["description"]},
            "kind": {"type": "string", "description": fields["kind"]["description"]},
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": convert.field(fields["spec"], "spec", defaults=True),
        },
    }
    if "status" in fields:
        schema["properties"]["status"] = convert.field(fields["status"], "status", defaults=False)
    if model is Backfill:
        _describe_mutability(schema["properties"]["spec"]["properties"])
    return _with_rules(schema, model.__name__)


def described(model: type[BaseModel]) -> Schema:
    """The JSON schema of a model, in which the docstrings of its fields are their descriptions."""
    return model.model_json_schema(by_alias=True, schema_generator=_Described)


class _Described(GenerateJsonSchema):
    """Reads docstrings. If pydantic did (``use_attribute_docstrings``), every process that imports
    a model would parse its source for them.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        docstrings: dict[str, str] = {}
        for base in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
            docstrings |= _docstrings(base)
        for name, field in model.model_fields.items():
            part = made["properties"].get(field.alias or name)  # some are left out on purpose
            if name in docstrings and part is not None:
                part.setdefault("description", docstrings[name])
        return made


def _docstrings(model: type) -> dict[str, str]:
    """What is said below each field that a class declares itself."""
    try:
        source = inspect.getsource(model)
    except OSError:  # it was made without a class statement
        return {}
    (declared,) = ast.parse(dedent(source)).body
    assert isinstance(declared, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _describe_mutability(fields: Schema) -> None:
    exceptions = f" Exceptions: {', '.join(f'`{name}`' for name in MUTABLE_IN_OUTPUTS)}."
    for name, field in fields.items():
        if name in MUTABLE_FIELDS:
            may = "May change at any time."
        elif name in ADJUSTABLE_FIELDS:
            may = "May change at any time, but cannot be set or removed once the plan is made."
        else:
            may = "Cannot change once the plan is made."
        field["description"] += f" {may}{exceptions if name == 'outputs' else ''}"


class _Converter:
    """Converts the parts of one model's schema. ``place`` is the path of a part, for errors."""

    def __init__(self, definitions: Schema) -> None:
        self._definitions = definitions

    def field(self, given: Schema, place: str, *, defaults: bool) -> Schema:
        """A field, with its description and its default."""
        schema, definition = self._resolved(given)
        converted = self._value(schema, definition, place, defaults=defaults)
        if "description" not in schema:
            raise IncompleteModelError(f"{place} has no description")
        described = _plain(schema["description"])
        if place.startswith("spec"):
            described += limits_of(schema) + _examples(schema)
        default = schema.get("default")
        if isinstance(default, str | int | float) and default != "" and place.startswith("spec"):
            described += (
                f" Default: {str(default).lower() if isinstance(default, bool) else default}."
            )
            if defaults:
                converted["default"] = default
        elif defaults and isinstance(default, dict) and (fields := _defaults(converted)):
            converted["default"] = fields
        return {"description": described, **converted}

    def _value(self, schema: Schema, definition: str, place: str, *, defaults: bool) -> Schema:
        if schema.get("x-kubernetes-int-or-string"):
            return _kept(schema) | {"anyOf": schema["anyOf"], "x-kubernetes-int-or-string": True}
        kind = schema["type"]
        converted = {"type": kind, **_kept(schema)}
        if kind == "object":
            converted |= self._object(schema, place, defaults=defaults)
        elif kind == "array":
            converted |= self._array(schema, place)
        elif kind in _FORMATS:
            converted["format"] = _FORMATS[kind]
        elif kind == "string":
            converted |= {key: schema[key] for key in ("format", "anyOf") if key in schema}
        bound = {"string": "maxLength", "array": "maxItems"}.get(kind)
        if bound and bound not in converted and "enum" not in converted:
            raise IncompleteModelError(f"{place} has no {bound}")
        return _with_rules(converted, definition)

    def _object(self, schema: Schema, place: str, *, defaults: bool) -> Schema:
        if "properties" not in schema:
            if "maxProperties" not in schema:
                raise IncompleteModelError(f"{place} has no maxProperties")
            values, definition = self._resolved(schema["additionalProperties"])
            return {
                "additionalProperties": self._value(
                    values, definition, f"{place}.*", defaults=False
                )
            }
        converted: Schema = {
            "properties": {
                name: self.field(part, f"{place}.{name}", defaults=defaults)
                for name, part in schema["properties"].items()
            }
        }
        if schema.get("required"):
            converted["required"] = schema["required"]
        if schema.get("additionalProperties") is True:
            converted |= {
                "x-kubernetes-preserve-unknown-fields": True,
                "maxProperties": _MOST_UNKNOWN_FIELDS,
            }
        return converted

    def _array(self, schema: Schema, place: str) -> Schema:
        items, definition = self._resolved(schema["items"])
        converted = self._value(items, definition, f"{place}[]", defaults=False)
        key = next((key for key in _KEYS if key in items.get("required", ())), None)
        if key is None:
            return {"items": converted, "x-kubernetes-list-type": "atomic"}
        return {
            "items": converted,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [key],
        }

    def _resolved(self, given: Schema) -> tuple[Schema, str]:
        """The schema behind a reference or an optional field, and the name of its model."""
        schema, name = dict(given), ""
        options = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
        if len(options) == 1:
            schema = {
                **options[0],
                **{key: value for key, value in schema.items() if key != "anyOf"},
            }
        if "$ref" in schema:
            name = schema.pop("$ref").rsplit("/", 1)[-1]
            schema = {**self._definitions[name], **_OPEN.get(name, {}), **schema}
            if name in _OPEN:
                del schema["enum"]
        if "const" in schema:
            schema["enum"] = [schema["const"]]
        return schema, name


def limits_of(schema: Schema) -> str:
    """The bounds of a number, list or map, as a sentence that continues its description; empty if
    there are none.
    """
    if "maximum" in schema:
        return f" Must be between {schema.get('minimum', 0):,} and {schema['maximum']:,}."
    if "minItems" in schema:
        return f" Must have {schema['minItems']:,} to {schema['maxItems']:,} items."
    if "maxItems" in schema:
        return f" At most {schema['maxItems']:,} items."
    return f" At most {schema['maxProperties']:,} entries." if "maxProperties" in schema else ""


def _examples(schema: Schema) -> str:
    """How a value is written, as a sentence that continues its description."""
    examples = ", ".join(f"`{example}`" for example in schema.get("examples", ()))
    return f" Examples: {examples}." if examples else ""


def _with_rules(schema: Schema, model: str) -> Schema:
    rules = [
        rule.to_manifest()
        for owner, rules in RULES.items()
        if owner.__name__ == model
        for rule in rules
    ]
    return {**schema, "x-kubernetes-validations": rules} if rules else schema


def _defaults(schema: Schema) -> Schema:
    """The defaults of an object's fields."""
    return {
        name: field["default"]
        for name, field in schema.get("properties", {}).items()
        if "default" in field
    }


def _kept(schema: Schema) -> Schema:
    return {key: schema[key] for key in _KEPT if key in schema}


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")
