"""What is made of production's SparkApplications is what the Spark operators' definitions allow, to
the last field.
"""

from typing import Any

import apache_definition
import pytest
from rest import DEFINITIONS, Rest

from backfill.controller.children.child_manifests import (
    child_manifests,
    child_problems,
    preview_launch,
)
from spark_applications import APACHE, KUBEFLOW, Manifest, backfill_of, production
from waiting import eventually

OVERRIDES: dict[str, Any] = {
    "sparkConf": {"spark.sql.adaptive.enabled": "false"},
    "driver": {"memory": "4g"},
    "executor": {"cores": 2, "memory": "6g"},
}


def only(base: Manifest, *fields: str, **spec: Any) -> Manifest:
    """A production SparkApplication with few fields."""
    return production(base, **{key: None for key in base["spec"] if key not in fields} | spec)


CASES: dict[str, tuple[Manifest, dict[str, Any]]] = {
    "kubeflow, everything": (KUBEFLOW, {"overrides": OVERRIDES}),
    "kubeflow, next to nothing": (
        only(
            KUBEFLOW, "type", "sparkVersion", "image", "mainApplicationFile", driver={}, executor={}
        ),
        {"catalogs": []},
    ),
    "kubeflow, fetched": (production(KUBEFLOW, mainApplicationFile="s3a://code/main.py"), {}),
    "apache, everything": (APACHE, {"overrides": OVERRIDES}),
    "apache, next to nothing": (
        only(APACHE, "pyFiles", "sparkConf", "runtimeVersions"),
        {"catalogs": []},
    ),
}


@pytest.fixture(scope="module")
def definitions(admin: Rest, crds: None) -> None:
    admin.apply(f"{DEFINITIONS}/{apache_definition.NAME}", apache_definition.definition()).expect()
    eventually(
        lambda: admin.get("apis/spark.apache.org/v1/sparkapplications").ok,
        "Apache's resources are served",
    )


def collection(manifest: Manifest, namespace: str) -> str:
    if manifest["kind"] == "ConfigMap":
        return f"api/v1/namespaces/{namespace}/configmaps"
    return f"apis/{manifest['apiVersion']}/namespaces/{namespace}/sparkapplications"


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("case", CASES)
def test_the_server_accepts_it_strictly_and_without_a_warning(
    admin: Rest, namespace: str, case: str
) -> None:
    base, spec = CASES[case]
    backfill = backfill_of(base, **spec)
    backfill = backfill.model_copy(
        update={"metadata": backfill.metadata.model_copy(update={"namespace": namespace})}
    )
    assert child_problems(backfill, base) == []
    for manifest in child_manifests(preview_launch(backfill), base):
        answer = admin.create(
            collection(manifest, namespace), manifest, dryRun="All", fieldValidation="Strict"
        )
        answer.expect()
        assert answer.warnings == []


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])
def test_production_as_the_tests_have_it_is_accepted_too(
    admin: Rest, namespace: str, base: Manifest
) -> None:
    manifest = base | {"metadata": {"name": "rmi", "namespace": namespace}}
    answer = admin.create(
        collection(manifest, namespace), manifest, dryRun="All", fieldValidation="Strict"
    )
    answer.expect()
    assert answer.warnings == []


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("pod", ["driver", "executor"])
@pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])
def test_pods_made_from_its_templates_are_accepted(
    admin: Rest, namespace: str, base: Manifest, pod: str
) -> None:
    """As Spark makes them: with an image for the container that runs Spark."""
    made = child_manifests(preview_launch(backfill_of(base)), base)[1]["spec"]
    template = made[pod]["template"] if pod in made else made[f"{pod}Spec"]["podTemplateSpec"]
    spec = template["spec"] | {"priorityClassName": None}
    spec["containers"] = [{"image": "spark:4.3", **container} for container in spec["containers"]]
    manifest = {"metadata": {"name": f"a-{pod}", **template.get("metadata", {})}, "spec": spec}
    answer = admin.create(
        f"api/v1/namespaces/{namespace}/pods", manifest, dryRun="All", fieldValidation="Strict"
    )
    answer.expect()
    assert answer.warnings == []
