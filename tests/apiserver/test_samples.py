"""The samples: a user applies them as they are."""

import json
from pathlib import Path

import pytest
import yaml
from rest import BACKFILLS, SPARK_APPLICATIONS, Manifest, Rest

from backfill.api.manifests.backfill_manifest import load_for_cluster
from backfill.controller.children.child_manifests import child_problems, dialect, render
from backfill.controller.children.live_manifests import deploys
from repository import ROOT

SAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PATHS = {
    "Backfill": BACKFILLS,
    "SparkApplication": SPARK_APPLICATIONS,
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
}

sample = pytest.mark.parametrize("file", SAMPLES, ids=[file.stem for file in SAMPLES])


def test_there_is_a_sample_of_each_use() -> None:
    stems = {file.stem for file in SAMPLES}
    assert stems == {
        "bootstrap",
        "correct",
        "dry-run",
        "fill",
        "several-sources",
        "unmodified-kafka",
    }


@sample
def test_a_sample_is_accepted_by_the_api_server_without_a_warning(
    file: Path, admin: Rest, crds: None, namespace: str
) -> None:
    for document in yaml.safe_load_all(file.read_text()):
        answer = admin.create(
            PATHS[document["kind"]].format(namespace), document, fieldValidation="Strict"
        )
        answer.expect()
        assert answer.warnings == []


@sample
def test_the_application_of_a_sample_can_be_run_again(
    file: Path, admin: Rest, crds: None, namespace: str
) -> None:
    given = load_for_cluster(file)
    assert given.application is not None
    assert child_problems(given.backfill, given.application) == []
    manifests = list(yaml.safe_load_all(render(given.backfill, given.application)))
    if deploys(given.backfill):
        version = given.application["apiVersion"]
        manifests.append(dialect(version).live(given.application, given.backfill))
    for document in manifests:
        moved: Manifest = json.loads(json.dumps(document))
        moved["metadata"]["namespace"] = namespace
        answer = admin.create(
            PATHS[document["kind"]].format(namespace), moved, fieldValidation="Strict", dryRun="All"
        )
        answer.expect()
        assert answer.warnings == []
