"""A model that would make a bad definition is refused when the definition is made, not by a user's
API server.
"""

import json
import re
from typing import Annotated

import pytest
from pydantic import Field

from backfill.api.base import Model
from backfill.crd.definitions import backfill_definition
from backfill.crd.schema import IncompleteModelError, schema_of


class Named(Model):
    """A part."""

    name: Annotated[str, Field(max_length=3)]
    """Its name."""


def resource(kind: object, described: bool = True) -> type[Model]:
    """A resource whose specification has one field of a kind."""
    field = Field(description="A field.") if described else Field()
    spec = type(
        "Spec", (Model,), {"__annotations__": {"value": kind}, "value": field, "__doc__": "A spec."}
    )
    annotations = {"api_version": str, "kind": str, "spec": spec, "status": Named}
    words = {name: Field(description=f"The {name}.") for name in annotations}
    return type(
        "Resource", (Model,), {"__annotations__": annotations, **words, "__doc__": "A resource."}
    )


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (str, r"spec\.value has no maxLength"),
        (tuple[Named, ...], r"spec\.value has no maxItems"),
        (Annotated[tuple[str, ...], Field(max_length=2)], r"spec\.value\[\] has no maxLength"),
        (dict[str, int], r"spec\.value has no maxProperties"),
        (Annotated[dict[str, str], Field(max_length=2)], r"spec\.value\.\* has no maxLength"),
    ],
)
def test_what_has_no_bound_is_named(kind: object, message: str) -> None:
    with pytest.raises(IncompleteModelError, match=message):
        schema_of(resource(kind))


def test_a_field_without_a_description_is_named() -> None:
    with pytest.raises(IncompleteModelError, match=r"spec\.value has no description"):
        schema_of(resource(int, described=False))


def test_a_list_of_named_parts_is_merged_by_their_names() -> None:
    schema = schema_of(resource(Annotated[tuple[Named, ...], Field(max_length=2)]))
    value = schema["properties"]["spec"]["properties"]["value"]
    assert (value["x-kubernetes-list-type"], value["x-kubernetes-list-map-keys"]) == (
        "map",
        ["name"],
    )


def test_every_field_of_a_specification_says_whether_it_may_change() -> None:
    schema = backfill_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name, field in schema["properties"]["spec"]["properties"].items():
        may = name in {
            "suspend",
            "scaling",
            "overrides",
            "failurePolicy",
            "retryNonce",
            "ttlAfterFinished",
        }
        description = field["description"]
        if name == "maxRowsPerSecond":
            assert description.endswith("cannot be set or removed once the plan is made.")
            continue
        assert ("May change at any time." in description) is may, name
        assert ("Cannot change once the plan is made." in description) is not may, name


def test_rules_name_fields_as_manifests_do_or_no_api_server_installs_the_definition() -> None:
    text = json.dumps(backfill_definition())
    rules = re.findall(r'"rule": "((?:[^"\\\\]|\\\\.)*)"', text)
    assert rules
    assert [rule for rule in rules if re.search(r"\.(?!exists_one)[a-z]+_[a-z]", rule)] == []
