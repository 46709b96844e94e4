"""What users write is stored as the models read it, and the server fills in what the models
would.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest import BACKFILLS, Manifest, Rest
from samples import BACKFILL, rich_backfill

from backfill.api.backfill import Backfill
from backfill.api.manifests.documents import read_documents
from backfill.api.manifests.problems import read_json
from manifests import changed
from repository import ROOT


def documents() -> Iterator[tuple[str, Manifest]]:
    """Every Backfill of the examples and of the documentation's pages."""
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        yield from _backfills(path.relative_to(ROOT), path.read_text())
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in path.read_text().split("```yaml\n")[1:]:
            yield from _backfills(path.relative_to(ROOT), block.split("```")[0])


def _backfills(path: Path, text: str) -> Iterator[tuple[str, Manifest]]:
    for document in read_documents(text, str(path)):  # as kubectl does, it leaves dates as texts
        if document.get("kind") == "Backfill":
            yield f"{path}:{document['metadata']['name']}", document


DOCUMENTS = dict(documents())


@pytest.mark.parametrize("place", DOCUMENTS)
def test_an_example_is_stored_as_it_is_read(
    admin: Rest, crds: None, namespace: str, place: str
) -> None:
    given = changed(DOCUMENTS[place], {"metadata.namespace": namespace})
    _stored_as_read(admin, namespace, given)


def test_a_backfill_that_uses_every_part_is_stored_as_it_is_read(
    admin: Rest, crds: None, namespace: str
) -> None:
    _stored_as_read(admin, namespace, changed(rich_backfill(), {"metadata.namespace": namespace}))


def _stored_as_read(admin: Rest, namespace: str, given: Manifest) -> None:
    answer = admin.create(BACKFILLS.format(namespace), given, fieldValidation="Strict")
    stored = answer.expect()
    assert answer.warnings == []
    assert read_json(Backfill, stored).spec == read_json(Backfill, given).spec


def test_outside_of_lists_every_default_of_the_models_is_the_servers(
    admin: Rest, crds: None, namespace: str
) -> None:
    stored = admin.create(BACKFILLS.format(namespace), BACKFILL).expect()["spec"]
    read = read_json(Backfill, BACKFILL).spec.to_manifest()
    assert dict(_values(stored)) == dict(_values(read))


def test_within_lists_the_server_adds_nothing_so_that_gitops_tools_see_no_difference(
    admin: Rest, crds: None, namespace: str
) -> None:
    stored = admin.create(BACKFILLS.format(namespace), BACKFILL).expect()["spec"]
    assert (stored["sources"], stored["outputs"]) == (
        BACKFILL["spec"]["sources"],
        BACKFILL["spec"]["outputs"],
    )


def test_a_backfill_can_be_applied_by_two_managers_and_lists_are_merged_by_name(
    admin: Rest, crds: None, namespace: str
) -> None:
    path = f"{BACKFILLS.format(namespace)}/july"
    admin.apply(path, BACKFILL, manager="git").expect()
    approval = {"spec": {"outputs": [{"name": "summary", "publish": {"approval": "Manual"}}]}}
    identity = {key: BACKFILL[key] for key in ("apiVersion", "kind", "metadata")}
    admin.apply(path, identity | approval, manager="person").expect()
    output = admin.apply(path, BACKFILL, manager="git").expect()["spec"]["outputs"][0]
    assert output == BACKFILL["spec"]["outputs"][0] | {"publish": {"approval": "Manual"}}


def _values(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value outside of lists, by its place. An object without values is as good as
    none.
    """
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _values(part, f"{place}.{key}")
    elif not isinstance(value, list):
        yield place, value
