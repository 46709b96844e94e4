"""The pod of a job, made of the driver that the application would have."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from backfill.api.spark_application import Application
from backfill.controller.cluster.job_pods import pod_main
from backfill.controller.cluster.job_pods.pod_manifests import (
    JobImage,
    job_config_map,
    job_name,
    job_pod,
    job_report,
)
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.iceberg.spark_catalogs import catalogs_variable
from backfill.planning.workspace import Workspace
from spark_applications import APACHE, KUBEFLOW, Manifest, backfill_of

BASES = pytest.mark.parametrize("base", [KUBEFLOW, APACHE], ids=["kubeflow", "apache"])


def made(base: Manifest, **spec: Any) -> Manifest:
    backfill = backfill_of(base, **spec)
    return job_pod(backfill, job(base), base, JobImage("jobs:1"))


def job(base: Manifest, parallelism: int = 2) -> PlanJob:
    backfill = backfill_of(base)
    return PlanJob.of(backfill, Workspace("s3://lake/backfills"), parallelism)


def names(entries: list[Manifest]) -> list[str]:
    return [entry["name"] for entry in entries]


@BASES
def test_it_has_the_identity_of_the_driver_and_an_image_that_begins_by_itself(
    base: Manifest,
) -> None:
    pod = made(base)
    container = pod["spec"]["containers"][0]
    assert container["image"] == "jobs:1"
    assert not {"command", "args", "imagePullPolicy", "workingDir"} & set(container)
    assert pod["spec"]["serviceAccountName"] == "rmi"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "6f1c"


def test_what_a_program_reads_is_found_with_the_image_and_the_python_of_its_driver() -> None:
    application = Application(name="rmi", main_application_file="/opt/main.py")
    backfill = backfill_of(KUBEFLOW, sources=[], outputs=[])
    search = ResolveJob.of(backfill, application)
    image = {"image": "team/rmi:7", "imagePullPolicy": "Always"}
    base = {**KUBEFLOW, "spec": {**KUBEFLOW["spec"], **image}}
    container = job_pod(backfill, search, base, JobImage("jobs:1", "Never"))["spec"]["containers"][
        0
    ]
    assert (container["image"], container["imagePullPolicy"]) == ("team/rmi:7", "Always")
    assert container["command"][:2] == ["/bin/sh", "-c"]
    assert "PYSPARK_DRIVER_PYTHON" in container["command"][2]
    of_the_driver = copy.deepcopy(base)
    of_the_driver["spec"]["driver"]["image"] = "team/driver:7"
    pod = job_pod(backfill, search, of_the_driver, JobImage("jobs:1"))
    assert pod["spec"]["containers"][0]["image"] == "team/driver:7"


@BASES
def test_it_runs_once_within_its_memory_with_what_the_driver_has_beside_it_until_it_ends(
    base: Manifest,
) -> None:
    spec = made(base, planning={"resources": {"memory": "3Gi"}})["spec"]
    assert spec["restartPolicy"] == "Never"
    assert len(spec["containers"]) == 1, "another one would keep the pod from ending"
    assert spec["initContainers"][-1] == {
        "name": "proxy",
        "image": "proxy:1",
        "restartPolicy": "Always",
    }
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "250m", "memory": "3Gi", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "2", "memory": "3Gi", "ephemeral-storage": "1Gi"},
    }
    assert spec["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError", (
        "the end of its log is told"
    )


@BASES
def test_chosen_resources_are_requested_and_limited(base: Manifest) -> None:
    chosen = {"cpu": "500m", "memory": "1Gi", "ephemeralStorage": "3Gi"}
    resources = made(base, planning={"resources": chosen})["spec"]["containers"][0]["resources"]
    assert (
        resources["requests"]
        == resources["limits"]
        == {
            "cpu": "500m",
            "memory": "1Gi",
            "ephemeral-storage": "3Gi",
        }
    )


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"memory": "64Mi"}, "set at least 128Mi"),
        ({"memory": "2 GB"}, "memory"),
        ({"cpu": "0"}, "cpu"),
        ({"cpu": "two"}, "cpu"),
        ({"ephemeralStorage": "lots"}, "ephemeralStorage"),
        ({"gpu": "1"}, "gpu"),
    ],
)
def test_resources_that_cannot_be_are_refused(resources: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        backfill_of(KUBEFLOW, planning={"resources": resources})


@BASES
def test_it_has_the_catalogs_and_its_job_and_nothing_that_belongs_to_a_driver(
    base: Manifest,
) -> None:
    pod = made(base)
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert {"/etc/backfill/catalogs/lake", "/etc/backfill/job"} <= set(mounts)
    assert set(mounts.values()) <= set(names(spec["volumes"]))
    assert len(set(mounts)) == len(container["volumeMounts"])
    variables = names(container["env"])
    assert "BACKFILL_SETTINGS" not in variables
    assert {"BACKFILL_JOB", "BACKFILL_CATALOGS"} <= set(variables)
    assert "backfill-launcher" not in names(spec["volumes"])
    assert not {"backfill.dev/attempt", "spark-role"} & set(pod["metadata"]["labels"])


def test_it_has_the_catalogs_of_spark_that_have_no_secret() -> None:
    base = copy.deepcopy(KUBEFLOW)
    base["spec"]["sparkConf"] |= {
        "spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.other.type": "hive",
        "spark.sql.catalog.other.uri": "thrift://hive-metastore:9083",
    }
    (container,) = made(base)["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    found = json.loads(variables["BACKFILL_APPLICATION_CATALOGS"])["other"]
    assert found == {
        "type": "hive",
        "uri": "thrift://hive-metastore:9083",
        "s3.endpoint": "http://minio",  # of hadoopConf
    }


def test_its_log_has_no_credentials_of_sparks_properties(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = "spark.sql.catalog.lake"
    conf = {
        key: "org.apache.iceberg.spark.SparkCatalog",
        f"{key}.type": "jdbc",
        f"{key}.uri": "jdbc:postgresql://db/lake",
        f"{key}.jdbc.user": "iceberg",
        f"{key}.jdbc.password": "cor/rect",
        "spark.hadoop.fs.s3a.secret.key": "battery-staple",
    }
    monkeypatch.setenv("BACKFILL_CATALOGS", str(tmp_path))
    for name, value in catalogs_variable(conf).items():
        monkeypatch.setenv(name, value)

    def fails(*_: object) -> int:
        print("postgresql://db/lake refused cor/rect, cor%2Frect, battery-staple", file=sys.stderr)
        return 1

    monkeypatch.setattr(pod_main, "_main", fails)
    assert pod_main.main() == 1
    assert capsys.readouterr().err == "postgresql://db/lake refused ***, ***, ***\n"


def test_it_stands_where_production_stands() -> None:
    spec = made(KUBEFLOW)["spec"]
    assert spec["nodeSelector"] == {"pool": "streaming"}
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert {"name": "gcp-volume", "secret": {"secretName": "gcp"}} in spec["volumes"]
    assert {"name": "LEGACY", "value": "1"} in spec["containers"][0]["env"]


_PROPERTIES = {
    "spark.kubernetes.driver.secrets.keys": "/etc/keys",
    "spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID": "s3:id",
    "spark.kubernetes.driverEnv.AWS_REGION": "eu-west-1",
    "spark.kubernetes.driver.volumes.persistentVolumeClaim.lake.mount.path": "/lake",
    "spark.kubernetes.driver.volumes.persistentVolumeClaim.lake.mount.readOnly": "true",
    "spark.kubernetes.driver.volumes.persistentVolumeClaim.lake.options.claimName": "lake-claim",
    "spark.kubernetes.driver.volumes.emptyDir.scratch.options.sizeLimit": "1Gi",
    "spark.kubernetes.driver.label.azure.workload.identity/use": "true",
    "spark.kubernetes.driver.annotation.iam": "lake-reader",
    "spark.kubernetes.node.selector.kubernetes.io/arch": "arm64",
    "spark.kubernetes.executor.secrets.others": "/etc/others",
}


@BASES
def test_it_has_what_spark_would_make_of_the_drivers_properties(base: Manifest) -> None:
    given = copy.deepcopy(base)
    given["spec"].setdefault("sparkConf", {}).update(_PROPERTIES)
    pod = made(given)
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    volumes = {each["name"]: each for each in spec["volumes"]}
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert volumes[mounts["/etc/keys"]["name"]]["secret"] == {"secretName": "keys"}
    assert volumes["lake"]["persistentVolumeClaim"] == {"claimName": "lake-claim"}
    assert mounts["/lake"] == {"name": "lake", "mountPath": "/lake", "readOnly": True}
    assert "scratch" not in volumes, "it is mounted nowhere"
    assert "/etc/others" not in mounts
    reference = {"secretKeyRef": {"name": "s3", "key": "id"}}
    assert {"name": "AWS_ACCESS_KEY_ID", "valueFrom": reference} in container["env"]
    assert {"name": "AWS_REGION", "value": "eu-west-1"} in container["env"]
    assert pod["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    assert pod["metadata"]["annotations"]["iam"] == "lake-reader"
    assert spec["nodeSelector"]["kubernetes.io/arch"] == "arm64"


def test_a_library_finds_the_file_of_googles_credentials() -> None:
    given = copy.deepcopy(KUBEFLOW)
    given["spec"]["driver"]["secrets"][0]["secretType"] = "GCPServiceAccount"
    variable = {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/mnt/gcp/key.json"}
    assert variable in made(given)["spec"]["containers"][0]["env"]


def test_the_same_job_has_the_same_name_and_another_one_another() -> None:
    backfill = backfill_of(KUBEFLOW)
    name = job_name(backfill, job(KUBEFLOW))
    assert name == job_name(backfill, job(KUBEFLOW))
    for make in (job_config_map, job_report):
        assert make(backfill, job(KUBEFLOW))["metadata"]["name"] == name
    again = backfill.model_copy(
        update={"metadata": backfill.metadata.model_copy(update={"uid": "made-again"})}
    )
    another = PlanJob.of(
        backfill_of(KUBEFLOW, maxMisalignment="1h"), Workspace("s3://lake/backfills"), 2
    )
    assert len({name, job_name(backfill, another), job_name(again, job(KUBEFLOW))}) == 3
    assert job_name(backfill, job(KUBEFLOW, parallelism=3)) == name, "scaling makes no other plan"
    longest = backfill.metadata.model_copy(update={"name": "a" * 63})
    assert len(job_name(backfill.model_copy(update={"metadata": longest}), job(KUBEFLOW))) <= 63
