"""Spark itself makes the driver pod of a child: ``spark-submit`` on a real API server, told what
Kubeflow's operator tells it.
"""

import json
import os
import subprocess
from pathlib import Path

import pyspark
import yaml
from rest import Rest

from backfill.controller.children.child_manifests import child_manifests, preview_launch
from backfill.protocol.driver_settings import DriverSettings
from spark_applications import KUBEFLOW, Manifest, backfill_of

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


def submit_arguments(child: Manifest, templates: Path, server: str) -> list[str]:
    """As the operator's ``submission.go`` has it, as far as the child of the test says something of
    it.
    """
    spec, name = child["spec"], child["metadata"]["name"]
    conf = dict(spec["sparkConf"]) | {
        "spark.kubernetes.namespace": child["metadata"]["namespace"],
        "spark.kubernetes.driver.pod.name": f"{name}-driver",
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.pyspark.pythonVersion": spec["pythonVersion"],
        "spark.executor.instances": str(spec["executor"]["instances"]),
    }
    for role in ("driver", "executor"):
        pod, file = spec[role], templates / f"{role}.yaml"
        file.write_text(yaml.safe_dump(pod["template"]))
        conf |= {
            f"spark.kubernetes.{role}.podTemplateFile": str(file),
            f"spark.kubernetes.{role}.podTemplateContainerName": f"spark-kubernetes-{role}",
            f"spark.kubernetes.{role}.container.image": spec["image"],
            f"spark.{role}.cores": str(pod["cores"]),
            f"spark.{role}.memory": pod["memory"],
        }
        conf |= {
            f"spark.kubernetes.{role}.label.{key}": value for key, value in pod["labels"].items()
        }
        conf |= {
            f"spark.kubernetes.{role}Env.{key}": value
            for key, value in pod.get("envVars", {}).items()
        }
        conf |= {
            f"spark.kubernetes.{role}.secrets.{each['name']}": each["path"]
            for each in pod.get("secrets", [])
        }
    properties = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    start = ["--master", f"k8s://{server}", "--deploy-mode", "cluster", "--name", name]
    return [*start, *properties, spec["mainApplicationFile"]]


def test_the_driver_pod_has_all_that_production_has_and_begins_with_the_launcher(
    admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path
) -> None:
    backfill = backfill_of(KUBEFLOW)
    backfill = backfill.model_copy(
        update={"metadata": backfill.metadata.model_copy(update={"namespace": namespace})}
    )
    child = child_manifests(preview_launch(backfill), KUBEFLOW)[1]
    child["spec"]["driver"]["template"]["spec"].pop("priorityClassName")  # the cluster has none
    server = yaml.safe_load(cluster_admin.read_text())["clusters"][0]["cluster"]["server"]
    command = [str(SUBMIT), *submit_arguments(child, tmp_path, server)]
    environment = os.environ | {"KUBECONFIG": str(cluster_admin)}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    pod = admin.get(
        f"api/v1/namespaces/{namespace}/pods/{child['metadata']['name']}-driver"
    ).expect()["spec"]
    container = next(
        each for each in pod["containers"] if each["name"] == "spark-kubernetes-driver"
    )
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert (
        DriverSettings.model_validate_json(variables["BACKFILL_SETTINGS"]).sources
        == backfill.spec.sources
    )
    assert container["args"][-1] == "local:///etc/backfill/run.py"
    assert mounts >= {
        "/etc/backfill/run.py",
        "/etc/backfill/catalogs/lake",
        "/etc/geo",
        "/mnt/gcp",
    }
    assert (variables["REGION"], variables["LEGACY"]) == ("us", "1")
    assert [each["name"] for each in pod["containers"]] == ["spark-kubernetes-driver"]
    beside = {each["name"]: each.get("restartPolicy") for each in pod["initContainers"]}
    assert beside == {
        "warm": None,
        "proxy": "Always",
    }, "Spark hands on that it ends with its container"
    assert container["resources"]["requests"]["cpu"] == "2"
    assert json.dumps(pod["tolerations"]).count("spot") == 1
