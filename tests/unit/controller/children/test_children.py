"""What a backfill makes of production SparkApplications."""

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backfill.api.backfill import Backfill
from backfill.controller.children.child_manifests import (
    child_manifests,
    child_problems,
    dialect,
    preview_launch,
    render,
)
from backfill.protocol.driver_settings import DriverSettings
from spark_applications import APACHE, BACKFILL, KUBEFLOW, Manifest, backfill_of, production

BOTH = pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])


def child(base: Manifest, **spec: Any) -> Manifest:
    """The child of a production SparkApplication, for a Backfill with fields of its spec
    replaced.
    """
    backfill = backfill_of(base, **spec)
    assert child_problems(backfill, base) == []
    return child_manifests(preview_launch(backfill), base)[1]


def pods(base: Manifest, made: Manifest) -> tuple[Manifest, Manifest]:
    driver, executor = dialect(base["apiVersion"]).pods(made)
    return driver["spec"], executor["spec"]


def spark(pod: Manifest) -> Manifest:
    container: Manifest = pod["containers"][0]
    assert container["name"].startswith("spark-kubernetes-")
    return container


def variables(pod: Manifest) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in spark(pod)["env"]
    }


def mounted(pod: Manifest) -> dict[str, Manifest]:
    """What is mounted, by path."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in spark(pod)["volumeMounts"]}


@BOTH
def test_the_driver_begins_with_the_launcher_and_is_told_of_the_programs_own_main_file(
    base: Manifest,
) -> None:
    launcher, made = child_manifests(preview_launch(backfill_of(base)), base)
    driver, _ = pods(base, made)
    told = DriverSettings.model_validate_json(variables(driver)["BACKFILL_SETTINGS"])
    assert (
        made["spec"].get("mainApplicationFile") or made["spec"]["pyFiles"]
    ) == "local:///etc/backfill/run.py"
    assert (
        mounted(driver)["/etc/backfill/run.py"]["configMap"]["name"] == launcher["metadata"]["name"]
    )
    assert (told.main_file, told.arguments) == ("/opt/app/main.py", ("--brokers", "kafka:9092"))
    assert (told.channel, told.attempt) == ("kubernetes:rmi-july-11", 1)
    compile(launcher["data"]["run.py"], "run.py", "exec")


@BOTH
def test_no_dollar_reaches_the_kubelet_for_it_would_expand_variables(base: Manifest) -> None:
    text = variables(pods(base, child(base))[0])["BACKFILL_SETTINGS"]
    assert "$" not in text
    assert json.loads(text)["sources"][0]["filter"] == "note == 'costs $(HOME) or $5'"


@BOTH
def test_driver_and_executors_have_the_catalogs_secrets(base: Manifest) -> None:
    for pod in pods(base, child(base)):
        assert mounted(pod)["/etc/backfill/catalogs/lake"]["secret"]["secretName"] == "lake-catalog"
        assert variables(pod)["BACKFILL_CATALOGS"] == "/etc/backfill/catalogs"


@BOTH
def test_driver_and_executors_have_the_catalogs_of_spark_that_have_no_secret(
    base: Manifest,
) -> None:
    base = copy.deepcopy(base)
    for name in ("lake", "other"):
        key = f"spark.sql.catalog.{name}"
        base["spec"]["sparkConf"] |= {
            key: "org.apache.iceberg.spark.SparkCatalog",
            f"{key}.type": "rest",
            f"{key}.uri": f"http://{name}",
            f"{key}.token": "a$(B)",
        }
    over = {"overrides": {"sparkConf": {"spark.sql.catalog.other.uri": "http://standby"}}}
    for pod in pods(base, child(base, **over)):
        text = variables(pod)["BACKFILL_APPLICATION_CATALOGS"]
        assert "$" not in text, "the kubelet would expand variables"
        expected = {"type": "rest", "uri": "http://standby", "token": "a$(B)"}
        assert json.loads(text) == {"other": expected}


@BOTH
def test_child_and_launcher_belong_to_the_backfill(base: Manifest) -> None:
    for manifest in child_manifests(preview_launch(backfill_of(base)), base):
        owner = manifest["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Backfill", "6f1c", True)
        assert manifest["metadata"]["labels"]["backfill.dev/attempt"] == "1"


@BOTH
def test_what_names_places_or_measures_productions_own_run_is_left_out(base: Manifest) -> None:
    made = child(base)
    conf, text = made["spec"]["sparkConf"], json.dumps(made["spec"])
    for foreign in (
        "s3a://prod/checkpoints",
        "rmi-driver",
        "8090",
        "prometheus",
        "connect",
        "ngress",
        "argo-app",
        "nightly",
    ):
        assert foreign not in text, foreign
    assert conf["spark.dynamicAllocation.enabled"] == "false"
    assert conf["spark.sql.shuffle.partitions"] == "160"
    assert conf["spark.eventLog.enabled"] == "true"
    assert (
        "spark.sql.streaming.checkpointLocation"
        in made["metadata"]["annotations"]["backfill.dev/not-inherited"]
    )


def test_labels_by_which_other_tools_find_what_they_manage_are_left_out() -> None:
    metadata = child(KUBEFLOW)["metadata"]
    assert metadata["labels"].keys() == {
        "team",
        "kueue.x-k8s.io/queue-name",
        "app.kubernetes.io/managed-by",
        "backfill.dev/application",
        "backfill.dev/backfill",
        "backfill.dev/attempt",
    }
    assert metadata["annotations"].keys() == {"cost-centre", "backfill.dev/not-inherited"}


def test_kubeflows_child_says_everything_that_would_otherwise_be_guessed() -> None:
    spec = child(KUBEFLOW)["spec"]
    assert (spec["type"], spec["mode"], spec["pythonVersion"], spec["sparkVersion"]) == (
        "Python",
        "cluster",
        "3",
        "4.3.0",
    )
    assert spec["restartPolicy"] == {"type": "Never"}
    assert (spec["driver"]["cores"], spec["driver"]["memory"]) == (2, "2g")
    assert [spec["executor"][field] for field in ("cores", "memory", "instances")] == [4, "8g", 2]


def test_what_only_kubeflows_webhook_would_do_is_in_the_templates() -> None:
    made = child(KUBEFLOW)
    driver, executor = pods(KUBEFLOW, made)
    assert variables(driver)["REGION"] == "us"
    assert variables(driver)["TOKEN"] == {"secretKeyRef": {"name": "api", "key": "token"}}
    assert spark(driver)["envFrom"] == [{"configMapRef": {"name": "common"}}]
    assert mounted(driver).keys() >= {"/etc/geo", "/etc/keys", "/etc/flags", "/etc/hadoop/conf"}
    assert [container["name"] for container in driver["initContainers"]] == ["warm", "proxy"]
    assert driver["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert "nodeAffinity" in driver["affinity"]
    assert (
        driver["securityContext"],
        spark(driver)["securityContext"]["allowPrivilegeEscalation"],
    ) == (
        {"runAsUser": 185},
        False,
    )
    assert (driver["priorityClassName"], driver["terminationGracePeriodSeconds"]) == ("high", 30)
    assert spark(executor)["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert variables(executor) == {
        "A": "1",
        "REGION": "us",
        "HADOOP_CONF_DIR": "/etc/hadoop/conf",
        "BACKFILL_CATALOGS": "/etc/backfill/catalogs",
    }


@BOTH
def test_what_runs_beside_spark_starts_after_all_that_prepares_the_pod_and_ends_with_spark(
    base: Manifest,
) -> None:
    driver, executor = pods(base, child(base))
    assert [container["name"] for container in driver["containers"]] == ["spark-kubernetes-driver"]
    assert driver["initContainers"][-1] == {
        "name": "proxy",
        "image": "proxy:1",
        "restartPolicy": "Always",
    }
    assert not [each for each in driver["initContainers"][:-1] if "restartPolicy" in each]
    assert (len(executor["containers"]), "initContainers" in executor) == (1, False)


def test_a_pod_is_the_same_with_kubeflows_webhook_and_without_it() -> None:
    """Whatever the webhook acts on is gone, so it finds nothing to add a second time."""
    made = child(KUBEFLOW)["spec"]
    acted_on = {
        "env",
        "envFrom",
        "configMaps",
        "sidecars",
        "initContainers",
        "tolerations",
        "affinity",
        "gpu",
        "hostAliases",
    }
    for role in ("driver", "executor"):
        assert not acted_on & made[role].keys()
        assert [mount["name"] for mount in made[role]["volumeMounts"]] == ["spark-local-dir-1"]
    assert [volume["name"] for volume in made["volumes"]] == ["spark-local-dir-1"]
    assert "hadoopConfigMap" not in made


def test_what_spark_submit_hands_over_stays_where_it_was() -> None:
    made = child(KUBEFLOW)["spec"]
    for field in ("image", "imagePullSecrets", "deps", "hadoopConf", "nodeSelector"):
        assert made[field] == KUBEFLOW["spec"][field]
    for field in ("serviceAccount", "secrets", "envVars", "coreRequest"):
        assert made["driver"][field] == KUBEFLOW["spec"]["driver"][field]


def test_overrides_are_merged_over_production_named_items_by_name() -> None:
    over = {
        "driver": {"memory": "4g", "env": [{"name": "REGION", "value": "eu"}], "tolerations": None},
        "executor": {"cores": 8, "tolerations": [{"key": "cheap"}]},
        "sparkConf": {"spark.sql.shuffle.partitions": "300", "spark.x": "1"},
    }
    made = child(KUBEFLOW, overrides=over)
    driver, executor = pods(KUBEFLOW, made)
    assert made["spec"]["driver"]["memory"] == "4g"
    assert "memoryLimit" not in made["spec"]["driver"], "it was for the old memory"
    assert (variables(driver)["REGION"], "TOKEN" in variables(driver)) == ("eu", True)
    assert ("tolerations" in driver, executor["tolerations"]) == (False, [{"key": "cheap"}])
    told = json.loads(variables(driver)["BACKFILL_SETTINGS"])["sparkConf"]
    assert (
        told["spark.sql.shuffle.partitions"],
        told["spark.x"],
        told["spark.executor.cores"],
    ) == ("300", "1", "8")
    assert made["spec"]["sparkConf"]["spark.sql.shuffle.partitions"] == "300"


def test_apaches_child_has_sizes_among_its_properties_and_keeps_the_pods_of_the_ended() -> None:
    over = {"driver": {"memory": "4g", "memoryOverhead": "1g"}, "executor": {"cores": 8}}
    spec = child(APACHE, overrides=over)["spec"]
    sizes = {
        key: value
        for key, value in spec["sparkConf"].items()
        if key.startswith(("spark.driver.", "spark.executor."))
    }
    assert sizes == {
        "spark.driver.cores": "1",
        "spark.driver.memory": "4g",
        "spark.driver.memoryOverhead": "1g",
        "spark.executor.cores": "8",
        "spark.executor.memory": "8g",
        "spark.executor.memoryOverhead": "3456m",
        "spark.executor.instances": "2",
        "spark.executor.decommission.forceKillTimeout": "5m",
        "spark.executor.maxNumFailures": "80",
        "spark.executor.failuresValidityInterval": "1h",
    }
    tolerations = spec["applicationTolerations"]
    assert (tolerations["restartConfig"], tolerations["resourceRetainPolicy"]) == (
        {"restartPolicy": "Never"},
        "Always",
    )
    assert tolerations["applicationTimeoutConfig"] == {"driverStartTimeoutMillis": 600000}
    assert "instanceConfig" not in tolerations


@pytest.mark.parametrize(
    ("base", "field"),
    [(KUBEFLOW, "mainApplicationFile"), (APACHE, "pyFiles")],
    ids=["kubeflow", "apache"],
)
def test_a_main_program_in_an_object_store_is_fetched_by_the_driver_and_not_where_it_is_submitted(
    base: Manifest, field: str
) -> None:
    program = "s3a://code/jobs/main.py"
    made = child(production(base, **{field: program}))
    settings = variables(pods(base, made)[0])["BACKFILL_SETTINGS"]
    assert json.loads(settings)["mainFile"] == program
    assert program not in json.dumps(made).replace(json.dumps(settings), "")


def test_several_files_of_apaches_are_the_program_and_its_modules() -> None:
    conf = child(production(APACHE, pyFiles="local:///opt/app/main.py, local:///opt/app/lib.zip"))[
        "spec"
    ]["sparkConf"]
    assert conf["spark.submit.pyFiles"] == "local:///opt/app/lib.zip"


@pytest.mark.parametrize("given", [None, "org.apache.spark.deploy.PythonRunner"])
def test_apaches_launcher_is_a_program_and_no_module(given: str | None) -> None:
    # without a class, this Spark operator adds the program to spark.submit.pyFiles
    spec = child(production(APACHE, mainClass=given))["spec"]
    assert spec["mainClass"] == "org.apache.spark.deploy.PythonRunner"
    assert "spark.submit.pyFiles" not in spec["sparkConf"]


def test_an_image_as_a_property_is_how_apaches_are_given() -> None:
    over = {"sparkConf": {"spark.kubernetes.container.image": "registry.example/next:2"}}
    assert (
        child(APACHE, overrides=over)["spec"]["sparkConf"]["spark.kubernetes.container.image"]
        == "registry.example/next:2"
    )


@BOTH
def test_a_preview_is_what_would_be_made(base: Manifest) -> None:
    backfill = backfill_of(base)
    assert list(yaml.safe_load_all(render(backfill, base))) == child_manifests(
        preview_launch(backfill), base
    )


def test_a_backfill_that_is_in_no_cluster_is_previewed_without_an_owner() -> None:
    loose = Backfill.model_validate({"metadata": {"name": "x"}, "spec": BACKFILL.spec})
    assert "ownerReferences" not in render(loose, KUBEFLOW)


_OPTIONAL = ["volumes", "deps", "hadoopConfigMap", "nodeSelector", "imagePullSecrets", "monitoring"]
_OPTIONAL_OF_DRIVER = sorted(KUBEFLOW["spec"]["driver"])


@given(st.sets(st.sampled_from(_OPTIONAL)), st.sets(st.sampled_from(_OPTIONAL_OF_DRIVER)))
def test_whatever_production_leaves_unsaid_the_child_is_complete(
    gone: set[str], gone_of_driver: set[str]
) -> None:
    driver = {
        key: value for key, value in KUBEFLOW["spec"]["driver"].items() if key not in gone_of_driver
    }
    base = production(KUBEFLOW, driver=driver, **dict.fromkeys(gone))
    before = json.dumps(base)
    made = child_manifests(preview_launch(backfill_of(base)), base)[1]
    assert json.dumps(base) == before
    for role in ("driver", "executor"):
        assert {"cores", "memory", "template", "labels"} <= made["spec"][role].keys()
    names = [volume["name"] for volume in made["spec"]["driver"]["template"]["spec"]["volumes"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("wanted", "started"), [(None, 2), (17, 17), (1, 2), (400, 40)])
@BOTH
def test_an_attempt_starts_with_as_many_executors_as_were_wanted_last(
    base: Manifest, wanted: int | None, started: int
) -> None:
    backfill = backfill_of(base)
    progress = backfill.status.progress.model_copy(update={"executor_target": wanted})
    status = backfill.status.model_copy(update={"progress": progress})
    _, made = child_manifests(preview_launch(backfill.model_copy(update={"status": status})), base)
    told = json.loads(variables(pods(base, made)[0])["BACKFILL_SETTINGS"])["sparkConf"]
    assert told["spark.executor.instances"] == str(started)
    if base is KUBEFLOW:
        assert made["spec"]["executor"]["instances"] == started


@BOTH
def test_executors_can_be_let_go_whatever_production_says(base: Manifest) -> None:
    old = production(
        base, sparkConf={**base["spec"].get("sparkConf", {}), "spark.decommission.enabled": "false"}
    )
    conf = child(old)["spec"]["sparkConf"]
    assert (conf["spark.decommission.enabled"], conf["spark.storage.decommission.enabled"]) == (
        "true",
        "true",
    )
