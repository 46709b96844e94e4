"""The ConfigMap with a plan's header is lost while no operator is there."""

import shutil
from pathlib import Path

import pytest
from mortal_operator import MortalOperators
from played import PlayedRun
from rest import SPARK_APPLICATIONS, Rest

from backfill.kube.object_names import child_name
from table_jobs import Clicks

pytestmark = pytest.mark.usefixtures("crds")


class Loss:
    """A run whose first attempt has begun, and an operator that starts after the loss."""

    def __init__(self, admin: Rest, kubeconfig: Path, namespace: str, folder: Path, clicks: Clicks):
        self.admin, self.run = admin, PlayedRun(admin, namespace, folder, clicks=clicks)
        self.config_map = f"api/v1/namespaces/{namespace}/configmaps/{self.run.name}-plan"
        before, self.after = (
            MortalOperators(kubeconfig, namespace),
            MortalOperators(kubeconfig, namespace),
        )
        self.run.create()
        child = f"{SPARK_APPLICATIONS.format(namespace)}/{child_name(self.run.name, 1)}"
        before.work_until(lambda: admin.get(child).ok, "the first attempt has a child")
        self.run.submit(1)
        self.run.report(1, committed=1)
        self.header = admin.get(self.config_map).expect()["binaryData"]
        admin.delete(self.config_map).expect()


@pytest.fixture
def loss(admin: Rest, cluster_admin: Path, namespace: str, tmp_path: Path, clicks: Clicks) -> Loss:
    return Loss(admin, cluster_admin, namespace, tmp_path, clicks)


def test_it_is_made_again_from_the_workspace_and_the_run_goes_on_with_its_driver(
    loss: Loss,
) -> None:
    loss.after.work_until(
        lambda: loss.admin.get(loss.config_map).ok, "the ConfigMap is there again"
    )
    assert loss.admin.get(loss.config_map).expect()["binaryData"].keys() == loss.header.keys()
    assert (
        loss.admin.get(loss.config_map).expect()["binaryData"]["plan.json.gz"]
        == loss.header["plan.json.gz"]
    )
    loss.after.work_until(
        lambda: loss.run.status["progress"].get("committed") == 1, "the driver is heard of"
    )
    assert loss.run.condition("Planned") == ("True", "PlanReady")
    loss.run.report(1, loss.run.assignment()["steps"] + 1, "Finished")
    loss.run.end(1)
    loss.after.work_until(lambda: loss.run.condition("Succeeded")[0] == "True", "it succeeds")
    assert len(loss.run.status["attempts"]) == 1


def test_without_the_one_in_the_workspace_the_backfill_has_failed_and_says_what_is_lost(
    loss: Loss,
) -> None:
    shutil.rmtree(loss.run.workspace)
    loss.after.work_until(lambda: loss.run.condition("Succeeded")[0] == "False", "it fails")
    told = {each["type"]: each for each in loss.run.status["conditions"]}["Planned"]
    assert told["reason"] == "PlanningFailed"
    assert f"ConfigMap {loss.run.namespace}/{loss.run.name}-plan does not exist" in told["message"]
    assert "either; cancel this backfill and start over" in told["message"]
