"""What a hand-off makes of production SparkApplications: the live one, and history before it."""

import json
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.api.hand_off import HandOffStatus
from backfill.api.status import BackfillStatus
from backfill.controller.children.child_manifests import (
    child_manifests,
    child_problems,
    dialect,
    preview_launch,
)
from backfill.protocol.driver_settings import DriverSettings
from backfill.protocol.hand_off_messages import LiveSettings
from spark_applications import APACHE, KUBEFLOW, Manifest, backfill_of, production

BOTH = pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])
PARTITIONS = "spark.sql.shuffle.partitions"


def handing_over(base: Manifest, start: str = "Deploy", **hand_off: Any) -> Backfill:
    window = {"start": "2021-07-11T00:00:00Z", "end": "Live"}
    return backfill_of(base, window=window, handOff={"to": "Live", "start": start, **hand_off})


def live(base: Manifest, **hand_off: Any) -> Manifest:
    backfill = handing_over(base, **hand_off)
    assert child_problems(backfill, base) == []
    return dialect(base["apiVersion"]).live(base, backfill)


def driver_of(base: Manifest, made: Manifest) -> tuple[Manifest, Manifest, dict[str, Any]]:
    """Metadata and container of a driver's pod, and the container's variables."""
    template, _ = dialect(base["apiVersion"]).pods(made)
    container = template["spec"]["containers"][0]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    return template, container, variables


def history(base: Manifest, **hand_off: Any) -> tuple[dict[str, str], DriverSettings]:
    """Spark properties and settings of an attempt."""
    made = child_manifests(preview_launch(handing_over(base, **hand_off)), base)[1]
    _, _, variables = driver_of(base, made)
    settings = DriverSettings.model_validate_json(variables["BACKFILL_SETTINGS"])
    return made["spec"]["sparkConf"], settings


@BOTH
def test_the_live_application_is_productions_and_outlives_the_backfill(base: Manifest) -> None:
    made = live(base)
    metadata, spec, old = made["metadata"], made["spec"], base["spec"]
    assert (metadata["name"], metadata["namespace"]) == ("rmi-july-11-live", "streaming")
    assert "ownerReferences" not in metadata
    ours = {"backfill": "rmi-july-11", "uid": "6f1c", "live": "true"}
    assert metadata["labels"].items() >= {f"backfill.dev/{k}": v for k, v in ours.items()}.items()
    assert metadata["labels"]["team"] == "ads"
    assert "argo-app" not in json.dumps(metadata), "another tool would prune it"
    assert "suspend" not in spec
    for field in ("restartPolicy", "dynamicAllocation", "applicationTolerations", "image"):
        assert spec.get(field) == old.get(field)
    conf = spec["sparkConf"]
    assert conf["spark.sql.streaming.checkpointLocation"] == "s3a://prod/checkpoints"
    assert conf["spark.dynamicAllocation.enabled"] == "true"
    assert "rmi-driver" not in json.dumps(made), "the pod of another application has this name"


@BOTH
def test_a_live_application_is_not_what_another_backfill_is_run_with(base: Manifest) -> None:
    (problem,) = child_problems(handing_over(base, start="Prepare"), live(base))
    assert "not the program itself" in problem.message, "its driver would go on live"
    assert "that this one was made from" in problem.fix


@BOTH
def test_its_driver_starts_the_program_through_the_launcher_it_carries(base: Manifest) -> None:
    made = live(base)
    template, container, variables = driver_of(base, made)
    program = made["spec"].get("mainApplicationFile") or made["spec"]["pyFiles"]
    (mount,) = [
        each for each in container["volumeMounts"] if f"local://{each['mountPath']}" == program
    ]
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    (item,) = volumes[mount["name"]]["downwardAPI"]["items"]
    assert item["path"] == mount["subPath"]
    key = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
    compile(template["metadata"]["annotations"][key], "run.py", "exec")
    told = LiveSettings.model_validate_json(variables["BACKFILL_LIVE_SETTINGS"])
    assert (told.main_file, told.arguments) == ("/opt/app/main.py", ("--brokers", "kafka:9092"))
    assert (told.backfill, told.namespace, told.uid) == ("rmi-july-11", "streaming", "6f1c")
    assert "BACKFILL_SETTINGS" not in variables
    assert variables["REGION"] == "us"


def test_a_program_in_an_object_store_is_fetched_by_the_live_driver() -> None:
    of_kubeflow = production(KUBEFLOW, mainApplicationFile="s3a://programs/main.py")
    of_apache = production(APACHE, pyFiles="s3a://programs/main.py,s3a://programs/lib.zip")
    for base in (of_kubeflow, of_apache):
        _, _, variables = driver_of(base, live(base))
        told = LiveSettings.model_validate_json(variables["BACKFILL_LIVE_SETTINGS"])
        assert told.main_file == "s3a://programs/main.py"
    conf = live(of_apache)["spec"]["sparkConf"]
    assert "spark.files" not in conf
    assert conf["spark.submit.pyFiles"] == "s3a://programs/lib.zip"
    assert live(of_apache)["spec"]["mainClass"] == "org.apache.spark.deploy.PythonRunner"


def test_its_size_is_productions_unless_the_hand_off_says_otherwise() -> None:
    overrides = {"executor": {"memory": "3g"}, "sparkConf": {"spark.x": "1"}}
    spec = live(KUBEFLOW, overrides=overrides)["spec"]
    assert (spec["executor"]["memory"], spec["executor"]["instances"]) == ("3g", 12)
    assert spec["driver"]["memory"] == "2g"
    assert spec["sparkConf"]["spark.x"] == "1"
    conf = live(APACHE, overrides=overrides)["spec"]["sparkConf"]
    assert (conf["spark.executor.memory"], conf["spark.executor.cores"]) == ("3g", "4")
    assert conf["spark.x"] == "1"


@BOTH
def test_its_name_is_that_of_the_spec_and_then_the_recorded_one(base: Manifest) -> None:
    assert live(base, name="profiles")["metadata"]["name"] == "profiles"
    backfill = handing_over(base, name="profiles")
    status = BackfillStatus(hand_off=HandOffStatus(application="recorded"))
    recorded = backfill.model_copy(update={"status": status})
    assert dialect(base["apiVersion"]).live(base, recorded)["metadata"]["name"] == "recorded"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"sparkConf": {PARTITIONS: "9"}}, "set spec.handOff.statePartitions"),
        ({"sparkConf": {"spark.sql.streaming.checkpointLocation": "s3://x"}}, "in the application"),
        ({"sparkConf": {"spark.app.name": "x"}}, "set spec.handOff.name"),
        ({"sparkConf": {"fs.s3a.endpoint": "x"}}, "is not a Spark property"),
        ({"driver": {"podName": "x"}}, "spec.handOff.overrides.driver.podName"),
    ],
)
@BOTH
def test_overrides_that_would_not_do_what_they_say_are_refused_beforehand(
    base: Manifest, overrides: Manifest, told: str
) -> None:
    (problem,) = child_problems(handing_over(base, overrides=overrides), base)
    assert told in str(problem)
    assert child_problems(handing_over(base, "Prepare", overrides=overrides), base) == []


@BOTH
def test_its_name_is_none_that_an_attempt_will_have(base: Manifest) -> None:
    (problem,) = child_problems(handing_over(base, name="rmi-july-11-a2"), base)
    assert "spec.handOff.name" in str(problem)
    assert child_problems(handing_over(base, name="rmi-july-11-a"), base) == []


@pytest.mark.parametrize("role", ["driver", "executor"])
@BOTH
def test_a_template_file_that_it_would_start_without_is_refused(base: Manifest, role: str) -> None:
    conf = base["spec"]["sparkConf"] | {f"spark.kubernetes.{role}.podTemplateFile": "s3a://x/y"}
    other = base | {"spec": base["spec"] | {"sparkConf": conf}}
    (problem,) = child_problems(handing_over(other), other)
    assert f"spec.sparkConf[spark.kubernetes.{role}.podTemplateFile]: has no effect" in str(problem)
    assert child_problems(handing_over(other, "Prepare"), other) == []


def test_history_is_read_with_productions_partitions_since_its_state_keeps_them() -> None:
    conf, settings = history(KUBEFLOW)
    assert conf[PARTITIONS] == "800"
    assert PARTITIONS not in settings.spark_conf, "the program may set another number"
    assert history(APACHE)[0][PARTITIONS] == "200", "Spark's default"
    conf, settings = history(KUBEFLOW, statePartitions=12)
    assert conf[PARTITIONS] == settings.spark_conf[PARTITIONS] == str(40 * 4)
    assert settings.hand_off is not None
    assert settings.hand_off.state_partitions == 12


def test_a_driver_knows_whether_the_operator_starts_the_live_application() -> None:
    for start in ("Prepare", "Deploy"):
        _, settings = history(KUBEFLOW, start=start)
        assert settings.hand_off is not None
        assert settings.hand_off.deployed == (start == "Deploy")


@BOTH
def test_a_driver_knows_where_the_live_application_keeps_its_checkpoints(base: Manifest) -> None:
    conf, settings = history(base, start="Prepare")
    assert settings.hand_off is not None
    assert settings.hand_off.checkpoint_location == "s3a://prod/checkpoints"
    assert "spark.sql.streaming.checkpointLocation" not in conf
    assert (settings.execution, settings.window.live) == ("Streaming", True)
    made = child_manifests(preview_launch(backfill_of(base)), base)[1]
    _, _, variables = driver_of(base, made)
    assert DriverSettings.model_validate_json(variables["BACKFILL_SETTINGS"]).hand_off is None
