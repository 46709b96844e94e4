"""Writes docs/reference.md from the resource models, so that the two cannot differ. ``--check`` only compares."""

import json
import sys
from pathlib import Path
from typing import Any

from backfill.api.backfill import Backfill

TARGET = Path(__file__).parents[1] / "docs" / "reference.md"
HEADER = """# The Backfill resource

Generated from the models in `operator/backfill/api/backfill.py` by `scripts/resource_reference.py`; `make verify` checks
that it is current. Durations are written `30s`, `15m`, `2h`, `1d` or `1h30m`; times in RFC 3339
(`2021-07-11T00:00:00Z`); sizes `64Mi`, `1Gi` or a number of bytes.
"""


def type_of(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A field's type in a word or two."""
    if schema.get("x-kubernetes-int-or-string"):
        return "size"
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if options:
        return type_of(options[0], definitions)
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        target = definitions[name]
        return " \\| ".join(f"`{value}`" for value in target["enum"]) if "enum" in target else f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'], definitions)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {type_of(schema['additionalProperties'], definitions)}"
    if "d)?" in schema.get("pattern", ""):
        return "duration"
    return {"date-time": "time"}.get(schema.get("format", ""), str(schema.get("type", "any")))


def default_of(schema: dict[str, Any], required: bool) -> str:
    """What stands when nothing is given."""
    if required:
        return "required"
    default = schema.get("default")
    return "" if default in (None, {}, [], "") or isinstance(default, dict) else f"`{json.dumps(default)}`".replace('"', "")


def meaning_of(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A field's description; pydantic leaves it out where it is the same as its type's."""
    target = definitions.get(schema.get("$ref", "").rsplit("/", 1)[-1], {})
    text = schema.get("description") or target.get("description", "")
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


def section(name: str, schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """One table of fields."""
    lines = [
        f"## {name}",
        "",
        " ".join(schema.get("description", "").split()),
        "",
        "| field | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for field, part in schema.get("properties", {}).items():
        default = default_of(part, field in schema.get("required", []))
        lines.append(f"| `{field}` | {type_of(part, definitions)} | {default} | {meaning_of(part, definitions)} |")
    return "\n".join(lines) + "\n"


def reference() -> str:
    """The whole page: the resource first, then its parts in the order in which they are met."""
    schema = Backfill.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs")
    parts = [section("Backfill", schema, definitions)]
    met: list[str] = []
    queue = [schema]
    while queue:
        text = str(queue.pop(0))
        for name in definitions:
            if f"#/$defs/{name}'" in text and name not in met:
                met.append(name)
                queue.append(definitions[name])
    parts += [section(name, definitions[name], definitions) for name in met if "properties" in definitions[name]]
    return HEADER + "\n" + "\n".join(parts)


def main() -> int:
    """Writes the page, or says that it is not current."""
    text = reference()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != text:
            print(f"{TARGET.name} is not current: run .venv/bin/python scripts/resource_reference.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
