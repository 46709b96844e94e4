"""Which Spark properties a program runs with: its own, and the same on this machine as on a
cluster.
"""

import json
import logging
from pathlib import Path

import pytest

from backfill.api.backfill import Backfill
from backfill.api.spark_application import read_application
from backfill.controller.children.child_manifests import child_manifests
from backfill.controller.driver import Launch
from backfill.controller.local_driver.backend import LocalBackend
from backfill.planning.workspace import Workspace
from backfill.protocol.driver_settings import SETTINGS_VARIABLE
from backfill.runtime.session_conf import resolved_conf
from backfill.runtime.settings import RuntimeSettings
from situations import HEADER
from spark_applications import APACHE, KUBEFLOW, Manifest, backfill_of, production

ZONE = "spark.sql.session.timeZone"
PARTITIONS = "spark.sql.shuffle.partitions"
PROGRAM = {ZONE: "America/New_York", "spark.sql.ansi.enabled": "false", PARTITIONS: "5"}
BROUGHT = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "true",
    PARTITIONS: "800",
    "spark.sql.streaming.stateStore.providerClass": "the.teams.own",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.checkpointLocation": "s3a://prod/checkpoints",
}
ABOUT_PLACE = {PARTITIONS, "spark.sql.streaming.checkpointFileManagerClass"}
"""Follow from the machine, and do not say what a row is."""


def _launch(backfill: Backfill) -> Launch:
    return Launch(
        1, backfill, HEADER.plan_id, Workspace("s3://lake/plan"), Workspace("s3://lake/checkpoints")
    )


def _on_cluster(
    backfill: Backfill, application: Manifest, program: dict[str, str]
) -> dict[str, str]:
    child = child_manifests(_launch(backfill), application)[1]
    pods = [child["spec"].get("driver"), child["spec"].get("driverSpec")]
    template = next(pod.get("template") or pod.get("podTemplateSpec") for pod in pods if pod)
    variables = [
        variable
        for container in template["spec"]["containers"]
        for variable in container.get("env", [])
    ]
    settings = next(
        variable["value"] for variable in variables if variable["name"] == SETTINGS_VARIABLE
    )
    return resolved_conf(
        child["spec"]["sparkConf"], program, RuntimeSettings.model_validate_json(settings)
    )


def _on_this_machine(
    directory: Path, backfill: Backfill, application: Manifest, program: dict[str, str]
) -> dict[str, str]:
    (directory / "main.py").touch()
    read = read_application(
        production(application, mainApplicationFile="main.py", deps=None), directory, "default"
    )
    backend = LocalBackend(
        directory / "attempts",
        directory,
        application=read,
        overrides=backfill.spec.overrides,
        command=("/bin/sh", "-c", f'printf %s "${SETTINGS_VARIABLE}" > {directory}/settings.json'),
    )
    backend.start(_launch(backfill))
    backend._children[1].wait()
    settings = json.loads((directory / "settings.json").read_text())
    return resolved_conf({}, program, RuntimeSettings.model_validate(settings))


def _of_sql(conf: dict[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in conf.items()
        if key.startswith("spark.sql.") and key not in ABOUT_PLACE
    }


@pytest.mark.parametrize(
    "program", [{}, PROGRAM], ids=["a program that sets nothing", "a program that sets its own"]
)
@pytest.mark.parametrize(
    "overridden",
    [{}, {ZONE: "Asia/Tokyo", "spark.sql.caseSensitive": "false"}],
    ids=["as is", "overrides"],
)
@pytest.mark.parametrize(
    "brought",
    [{}, BROUGHT],
    ids=["an application without properties", "an application with properties"],
)
def test_the_same_manifest_runs_with_the_same_sql_properties_here_and_on_a_cluster(
    tmp_path: Path, brought: dict[str, str], overridden: dict[str, str], program: dict[str, str]
) -> None:
    application = production(KUBEFLOW, sparkConf=brought)
    backfill = backfill_of(KUBEFLOW, overrides={"sparkConf": overridden}, workspace="s3://lake/w")
    here = _on_this_machine(tmp_path, backfill, application, program)
    assert _of_sql(here) == _of_sql(_on_cluster(backfill, application, program))


@pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["Kubeflow", "Apache"])
def test_what_a_program_sets_holds_over_what_its_application_brings_and_under_the_overrides(
    base: Manifest,
) -> None:
    conf = {**base["spec"]["sparkConf"], ZONE: "UTC", "spark.sql.ansi.enabled": "true"}
    backfill = backfill_of(base, overrides={"sparkConf": {"spark.sql.ansi.enabled": "true"}})
    resolved = _on_cluster(backfill, production(base, sparkConf=conf), PROGRAM)
    assert (resolved[ZONE], resolved["spark.sql.ansi.enabled"]) == ("America/New_York", "true")


def test_a_default_of_the_backfill_gives_way_to_what_production_brings() -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    resolved = _on_cluster(
        backfill_of(KUBEFLOW), production(KUBEFLOW, sparkConf={provider: "the.teams.own"}), {}
    )
    assert resolved[provider] == "the.teams.own"


def test_a_program_whose_property_is_not_used_is_told_which_and_never_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "spark.hadoop.fs.s3a.secret.key"
    backfill = backfill_of(KUBEFLOW, overrides={"sparkConf": {key: "one"}})
    with caplog.at_level(logging.WARNING):
        resolved = _on_cluster(
            backfill, KUBEFLOW, {key: "two", PARTITIONS: "5", ZONE: "America/New_York"}
        )
    assert resolved[key] == "one"
    assert key in caplog.text
    assert PARTITIONS in caplog.text
    assert ZONE not in caplog.text
    assert "two" not in caplog.text
