"""What is refused before anything is planned, for no child could be made of it."""

from typing import Any

import pytest

from backfill.api.errors import InvalidManifest
from backfill.controller.children.child_manifests import child_problems, dialect, render
from spark_applications import APACHE, KUBEFLOW, Manifest, backfill_of, production


def overriding(**overrides: Any) -> dict[str, Any]:
    return {"overrides": overrides}


def setting(key: str, value: str = "x") -> dict[str, Any]:
    return overriding(sparkConf={key: value})


UNFIT_CATALOG = {"catalogs": [{"name": "lake"}, {"name": "a_b", "secretRef": {"name": "s"}}]}

REFUSED: list[tuple[str, Manifest, dict[str, Any], str]] = [
    ("a JVM application", production(KUBEFLOW, type="Scala"), {}, "spec.type"),
    (
        "a program of the submitting machine",
        production(KUBEFLOW, mainApplicationFile="/home/me/main.py"),
        {},
        "local:///path",
    ),
    (
        "a jar as program",
        production(KUBEFLOW, mainApplicationFile="local:///app.jar"),
        {},
        "is not a Python program",
    ),
    (
        "no program",
        production(APACHE, pyFiles=None, jars="local:///app.jar"),
        {},
        "spec.pyFiles: is missing",
    ),
    (
        "jars that would be run instead of the program",
        production(APACHE, jars="local:///lib.jar"),
        {},
        "sparkConf[spark.jars]",
    ),
    ("no image", production(KUBEFLOW, image=None, sparkConf=None), {}, "spec.image: is missing"),
    ("no image among properties", production(APACHE, sparkConf=None), {}, "set the image"),
    ("a master", KUBEFLOW, setting("spark.master"), "sparkConf[spark.master]"),
    (
        "a checkpoint",
        APACHE,
        setting("spark.sql.streaming.checkpointLocation"),
        "kept in the workspace",
    ),
    ("a size as property", KUBEFLOW, setting("spark.driver.memory"), "spec.overrides.driver"),
    (
        "dynamic allocation",
        KUBEFLOW,
        setting("spark.dynamicAllocation.enabled"),
        "set spec.scaling",
    ),
    ("an image as property", KUBEFLOW, setting("spark.kubernetes.container.image"), "set image in"),
    ("no Spark property", KUBEFLOW, setting("fs.s3a.endpoint"), "spark.hadoop."),
    ("instances", KUBEFLOW, overriding(executor={"instances": 9}), "set spec.scaling"),
    (
        "a pod's name",
        KUBEFLOW,
        overriding(driver={"podName": "x"}),
        "spec.overrides.driver.podName",
    ),
    (
        "another operator's field",
        APACHE,
        overriding(driver={"tolerations": []}),
        "set pod fields under podTemplateSpec",
    ),
    ("no workspace", KUBEFLOW, {"workspace": None}, "spec.workspace: is missing"),
    (
        "a workspace that is not shared",
        KUBEFLOW,
        {"workspace": "/data"},
        "not on a volume of the driver that other pods share",
    ),
    ("a catalog that no variable can name", KUBEFLOW, UNFIT_CATALOG, "spec.catalogs[1].name"),
]


@pytest.mark.parametrize(
    ("base", "spec", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_can_not_work_is_refused_before_anything_is_planned(
    base: Manifest, spec: dict[str, Any], words: str
) -> None:
    problems = child_problems(backfill_of(base, **spec), base)
    assert any(words in str(problem) for problem in problems), problems
    assert all(problem.fix for problem in problems)


def test_an_unknown_kind_of_application_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidManifest, match=r"did you mean sparkoperator.k8s.io/v1beta2"):
        dialect("sparkoperator.k8s.io/v1beta1")


def test_a_workspace_on_a_shared_volume_will_do() -> None:
    mount = {"volumeMounts": [{"name": "share", "mountPath": "/data"}]}
    shared = production(
        KUBEFLOW,
        volumes=[{"name": "share", "persistentVolumeClaim": {"claimName": "share"}}],
        driver=KUBEFLOW["spec"]["driver"] | mount,
        executor=KUBEFLOW["spec"]["executor"] | mount,
    )
    assert child_problems(backfill_of(KUBEFLOW, workspace="/data/backfills"), shared) == []


def test_settings_too_long_for_a_variable_are_refused_with_what_makes_them_long() -> None:
    long = production(KUBEFLOW, arguments=["x" * 130_000])
    (problem,) = child_problems(backfill_of(KUBEFLOW), long)
    assert "mostly arguments" in problem.message


def test_a_preview_refuses_for_the_same_reasons() -> None:
    with pytest.raises(InvalidManifest, match=r"spec\.type"):
        render(backfill_of(KUBEFLOW), production(KUBEFLOW, type="R"))
