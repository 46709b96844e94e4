"""The definitions of this project's resources are what an API server wants, and what people can
read.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from resources import OWN
from rest import DEFINITIONS, Rest

from waiting import eventually

DEFINITION_FILES = pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)


def test_both_resources_have_a_definition() -> None:
    assert [path.name for path in OWN] == [
        "backfilldecisions.yaml",
        "backfills.yaml",
        "jobreports.yaml",
        "splitassignments.yaml",
    ]


@DEFINITION_FILES
def test_a_definition_is_accepted_without_a_warning_and_its_schema_is_structural(
    admin: Rest, crds: None, path: Any
) -> None:
    manifest = yaml.safe_load(path.read_text())
    answer = admin.apply(f"{DEFINITIONS}/{manifest['metadata']['name']}", manifest)
    conditions = {
        condition["type"]: condition["status"]
        for condition in answer.expect()["status"]["conditions"]
    }
    assert answer.warnings == []
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions


@DEFINITION_FILES
def test_a_definition_is_small_enough_for_every_client(path: Any) -> None:
    # kubectl keeps what it has applied as JSON in an annotation, and all may have 262,144 bytes
    applied = json.dumps(yaml.safe_load(path.read_text()), separators=(",", ":"))
    assert len(applied.encode()) < 131_072


@DEFINITION_FILES
def test_every_field_says_what_it_means(path: Any) -> None:
    schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    silent = [
        place
        for place, field in _fields(schema)
        if not field.get("description") and not place.startswith(".metadata")
    ]
    assert silent == []


def test_what_kubectl_explain_shows_is_published_by_the_server(admin: Rest, crds: None) -> None:
    path, name = "openapi/v3/apis/backfill.dev/v1alpha1", "dev.backfill.v1alpha1.Backfill"
    schema = eventually(
        lambda: admin.get(path).body["components"]["schemas"].get(name), "the schema is published"
    )
    policy = schema["properties"]["spec"]["properties"]["ordering"]["properties"]["policy"]
    assert (
        "use this for stateless applications only. Default: WithinLateness."
        in policy["description"]
    )


def _fields(schema: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield place, schema
    for name, field in schema.get("properties", {}).items():
        yield from _fields(field, f"{place}.{name}")
    for name, field in schema.get("items", {}).get("properties", {}).items():
        yield from _fields(field, f"{place}[].{name}")
