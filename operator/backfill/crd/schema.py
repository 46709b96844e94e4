"""The schema of a resource as the API server takes it, made from the resource's model, so that both check the same.

A model's JSON schema becomes a structural one: references and nulls resolved, every string, list and map with a bound (the
cost of expressions is estimated from it), a description on every field. Two choices need their reason:

* Nothing is defaulted within lists. A GitOps tool compares a list as a whole; fields that the server added to its items
  would make the resource look changed for ever. Descriptions tell the defaults, and the models apply them.
* Condition types and reasons are open strings: a definition older than the operator must not refuse its status.
"""

from typing import Any, Final

from backfill.api.backfill import Backfill
from backfill.api.base import Model
from backfill.api.changes import MUTABLE_FIELDS
from backfill.api.spec import NAME_PATTERN
from backfill.crd.rules import RULES

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
    """A string, list or map of a model has no bound, or a field no description; the message names it."""


def schema_of(model: type[Model]) -> Schema:
    """The structural schema of a resource.

    Raises:
        IncompleteModelError: the API server would take the schema, but users or the cost of expressions would not.
    """
    source = model.model_json_schema(by_alias=True)
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
            "status": convert.field(fields["status"], "status", defaults=False),
        },
    }
    if model is Backfill:
        _say_what_may_change(schema["properties"]["spec"]["properties"])
    return _with_rules(schema, model.__name__)


def _say_what_may_change(fields: Schema) -> None:
    for name, field in fields.items():
        may = "May change at any time." if name in MUTABLE_FIELDS else "Cannot change once the plan is made."
        but = " The approval of outputs may." if name == "outputs" else ""
        field["description"] = f"{field['description']} {may}{but}"


class _Converter:
    """Converts the parts of one model's schema. ``place`` is where a part stands, for errors."""

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
            described += _ways_to_write(schema)
        default = schema.get("default")
        if isinstance(default, str | int | float) and default != "" and place.startswith("spec"):
            described += f" Default: {str(default).lower() if isinstance(default, bool) else default}."
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
        elif kind == "string" and "format" in schema:
            converted["format"] = schema["format"]
        bound = {"string": "maxLength", "array": "maxItems"}.get(kind)
        if bound and bound not in converted and "enum" not in converted:
            raise IncompleteModelError(f"{place} has no {bound}")
        return _with_rules(converted, definition)

    def _object(self, schema: Schema, place: str, *, defaults: bool) -> Schema:
        if "properties" not in schema:
            if "maxProperties" not in schema:
                raise IncompleteModelError(f"{place} has no maxProperties")
            values, definition = self._resolved(schema["additionalProperties"])
            return {"additionalProperties": self._value(values, definition, f"{place}.*", defaults=False)}
        converted: Schema = {
            "properties": {
                name: self.field(part, f"{place}.{name}", defaults=defaults) for name, part in schema["properties"].items()
            }
        }
        if schema.get("required"):
            converted["required"] = schema["required"]
        if schema.get("additionalProperties") is True:
            converted |= {"x-kubernetes-preserve-unknown-fields": True, "maxProperties": _MOST_UNKNOWN_FIELDS}
        return converted

    def _array(self, schema: Schema, place: str) -> Schema:
        items, definition = self._resolved(schema["items"])
        converted = self._value(items, definition, f"{place}[]", defaults=False)
        key = next((key for key in _KEYS if key in items.get("required", ())), None)
        if key is None:
            return {"items": converted, "x-kubernetes-list-type": "atomic"}
        return {"items": converted, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}

    def _resolved(self, given: Schema) -> tuple[Schema, str]:
        """The schema that a reference or an optional field stands for, and the name of the model it is of."""
        schema, name = dict(given), ""
        options = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
        if len(options) == 1:
            schema = {**options[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
        if "$ref" in schema:
            name = schema.pop("$ref").rsplit("/", 1)[-1]
            schema = {**self._definitions[name], **_OPEN.get(name, {}), **schema}
            if name in _OPEN:
                del schema["enum"]
        if "const" in schema:
            schema["enum"] = [schema["const"]]
        return schema, name


def _ways_to_write(schema: Schema) -> str:
    examples = " or ".join(f"`{example}`" for example in schema.get("examples", ()))
    return f" Written as {examples}." if examples else ""


def _with_rules(schema: Schema, model: str) -> Schema:
    rules = [rule.to_manifest() for owner, rules in RULES.items() if owner.__name__ == model for rule in rules]
    return {**schema, "x-kubernetes-validations": rules} if rules else schema


def _defaults(schema: Schema) -> Schema:
    """What the fields of an object are when none is given."""
    return {name: field["default"] for name, field in schema.get("properties", {}).items() if "default" in field}


def _kept(schema: Schema) -> Schema:
    return {key: schema[key] for key in _KEPT if key in schema}


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")
