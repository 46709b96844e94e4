"""Memory beside the heap: as production has it where that is enough."""

from typing import Any

import pytest

from backfill.controller.children.child_manifests import child_manifests, preview_launch
from cases import cases
from spark_applications import APACHE, KUBEFLOW, Manifest, backfill_of, production


def pods(base: Manifest, **spec: Any) -> tuple[Manifest, Manifest]:
    made = child_manifests(preview_launch(backfill_of(base, **spec)), base)[1]["spec"]
    return made["driver"], made["executor"]


@cases(
    ("pod", "conf", "overhead"),
    {
        "a small heap leaves too little for the Python processes": ({"memory": "1g"}, {}, "896m"),
        "what Spark adds to a large one is enough": ({"memory": "4g"}, {}, None),
        "a small factor": (
            {"memory": "4g"},
            {"spark.kubernetes.memoryOverheadFactor": "0.1"},
            "896m",
        ),
        "a large factor": ({"memory": "4g"}, {"spark.driver.memoryOverheadFactor": "0.5"}, None),
        "a number alone is in MiB": ({"memory": "4g", "memoryOverhead": "500"}, {}, "896m"),
        "enough in the resource": ({"memory": "1g", "memoryOverhead": "2g"}, {}, None),
        "enough in the properties": (
            {"memory": "1g"},
            {"spark.driver.memoryOverhead": "3000m"},
            None,
        ),
    },
)
def test_a_driver_has_room_for_its_program_and_its_commits(
    pod: Manifest, conf: dict[str, str], overhead: str | None
) -> None:
    base = production(KUBEFLOW)
    base["spec"]["driver"] = pod
    base["spec"]["sparkConf"] = conf
    driver, _ = pods(base)
    assert driver.get("memoryOverhead") == (overhead or pod.get("memoryOverhead"))


def test_an_executor_has_room_for_the_tasks_that_run_in_it_at_once() -> None:
    base = production(KUBEFLOW)
    base["spec"]["executor"] = {"cores": 4, "memory": "2g", "memoryLimit": "3g"}
    executor = pods(base)[1]
    assert executor["memoryOverhead"] == "1920m"
    assert "memoryLimit" not in executor, "it would be less than what is asked for"


@pytest.mark.parametrize("field", ["memoryOverhead", "memoryLimit"])
def test_overrides_hold_as_they_are(field: str) -> None:
    base = production(KUBEFLOW)
    base["spec"]["driver"] = {"memory": "1g"}
    driver, _ = pods(base, overrides={"driver": {field: "1500m"}})
    assert {key: driver[key] for key in ("memoryOverhead", "memoryLimit") if key in driver} == {
        field: "1500m"
    }


def test_kubeflows_own_factor_counts() -> None:
    base = production(KUBEFLOW)
    base["spec"] |= {"driver": {"memory": "4g"}, "memoryOverheadFactor": "0.1"}
    assert pods(base)[0]["memoryOverhead"] == "896m"


def test_apaches_overhead_is_a_property() -> None:
    base = production(APACHE)
    base["spec"]["sparkConf"]["spark.driver.memory"] = "1g"
    child = child_manifests(preview_launch(backfill_of(base)), base)[1]
    assert child["spec"]["sparkConf"]["spark.driver.memoryOverhead"] == "896m"
