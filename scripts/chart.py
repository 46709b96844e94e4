"""Writes what follows from elsewhere in the Helm chart, so that the two cannot differ. ``--check``
only compares.

Definitions come from crds/, rules from deploy/rbac, and the table of values in the chart's README
from its values.yaml.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "backfill-operator"
_RULES = {
    "operator": ("operator-cluster.yaml", "ClusterRole", "backfill-operator"),
    "leader": ("operator.yaml", "Role", "backfill-operator-leader"),
    "driver": ("driver.yaml", "Role", "backfill-driver"),
    "edit": ("users.yaml", "ClusterRole", "backfill-edit"),
    "approve": ("users.yaml", "ClusterRole", "backfill-approve"),
    "view": ("users.yaml", "ClusterRole", "backfill-view"),
}
_POLICIES = {
    "boundary": "operator-boundary.yaml",
    "job-reports": "job-reports.yaml",
    "decisions": "decisions.yaml",
}
_KEEP = "helm.sh/resource-policy: keep"
_KEY = re.compile(r"^( *)([A-Za-z]\w*):")
_README = """# Helm chart

Generated from values.yaml by `make generate`. How to install it:
[docs/operating.md](../../docs/operating.md#install).

| value | type | default | meaning |
|---|---|---|---|
{rows}
"""


@dataclass(frozen=True)
class Value:
    """A value that values.yaml explains."""

    path: tuple[str, ...]
    meaning: str


def explained(text: str) -> Iterator[Value]:
    """The values with a comment that begins with ``# --``, in their order."""
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("#") and comment:
            comment.append(stripped.removeprefix("#").strip())
        elif key := _KEY.match(line):
            path[len(key[1]) // 2 :] = [key[2]]
            if comment:
                yield Value(tuple(path), " ".join(comment))
            comment = []


def definition_template(text: str) -> str:
    """A definition as a template: installed on demand, and kept when the chart is uninstalled."""
    head, metadata, tail = text.partition("\nmetadata:\n")
    return (
        f"{{{{- if .Values.crds.install }}}}\n{head}{metadata}  annotations:\n   "
        f" {_KEEP}\n{tail}{{{{- end }}}}\n"
    )


def rules(file: str, kind: str, name: str) -> str:
    """The rules of a role, as deploy/rbac has them."""
    manifests = yaml.safe_load_all((ROOT / "deploy" / "rbac" / file).read_text())
    role = next(
        each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )
    return yaml.dump(role["rules"], sort_keys=False, default_flow_style=None, width=130)


def policy(file: str) -> str:
    """An admission policy as deploy/rbac has it, for whatever account the release has."""
    policy = next(yaml.safe_load_all((ROOT / "deploy" / "rbac" / file).read_text()))
    text: str = yaml.dump(policy["spec"], sort_keys=False, default_flow_style=False, width=130)
    return text.replace("system:serviceaccount:backfill-operator:backfill-operator", "ACCOUNT")


def readme() -> str:
    """The chart's README."""
    text = (CHART / "values.yaml").read_text()
    values, schema = yaml.safe_load(text), json.loads((CHART / "values.schema.json").read_text())
    rows = "\n".join(_row(value, values, schema) for value in explained(text))
    return _README.format(rows=rows)


def _row(value: Value, values: dict[str, Any], schema: dict[str, Any]) -> str:
    part = schema
    for key in value.path:
        values, part = values[key], part["properties"][key]
        while "$ref" in part:
            part = schema["$defs"][part["$ref"].rsplit("/", 1)[-1]]
    kind = (
        " \\| ".join(f"`{choice}`" for choice in part["enum"])
        if "enum" in part
        else _type(part["type"])
    )
    default = (
        ""
        if values in ("", [], {}, None)
        else values
        if isinstance(values, str)
        else json.dumps(values)
    )
    shown = f"`{default}`" if default else ""
    meaning = value.meaning.replace("|", "\\|")
    return f"| `{'.'.join(value.path)}` | {kind} | {shown} | {meaning} |"


def _type(given: str | list[str]) -> str:
    return given if isinstance(given, str) else " or ".join(given)


def generated() -> dict[Path, str]:
    """The text of every file that is written here."""
    files = {CHART / "README.md": readme()}
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        files[CHART / "templates" / "crds" / path.name] = definition_template(path.read_text())
    for name, place in _RULES.items():
        text = rules(*place)
        if name == "leader":
            text = text.replace("[backfill-operator]", "[LEASE]")  # it has the release's name
        files[CHART / "files" / "rules" / f"{name}.yaml"] = text
    for name, file in _POLICIES.items():
        files[CHART / "files" / f"{name}.yaml"] = policy(file)
    return files


def main() -> int:
    """Writes the files, or says that they are not current."""
    files = generated()
    if "--check" not in sys.argv[1:]:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    stale = [
        path.relative_to(ROOT)
        for path, text in files.items()
        if not path.exists() or path.read_text() != text
    ]
    there = {*(CHART / "templates" / "crds").iterdir(), *(CHART / "files" / "rules").iterdir()}
    stale += [path.relative_to(ROOT) for path in sorted(there - files.keys())]
    for each in stale:
        print(f"{each} is not current: run make generate", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
