"""With credentials of its own the operator works in one part of the store for each namespace."""

from typing import Any, cast

import pytest

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput
from backfill.api.pods import RunIn
from backfill.controller.cluster.store import KubernetesStore
from backfill.kube.cache import Cache, own_key
from backfill.kube.client import Cluster

pytestmark = pytest.mark.hostile
BELOW = "s3://lake/work"
SECRET = {"catalogs": [{"name": "lake", "secretRef": {"name": "own"}}]}


def load(
    below: str | None = BELOW, default: str | None = None, run_in: RunIn = "Operator", **spec: Any
) -> Backfill | None:
    source = {"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}
    window = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z"}
    wanted = {"applicationRef": {"name": "rmi"}, "window": window, "sources": [source], **spec}
    metadata = {"namespace": "team-a", "name": "july", "uid": "u", "resourceVersion": "1"}
    backfills = Cache(own_key)
    backfills.put(
        {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "Backfill",
            "metadata": metadata,
            "spec": wanted,
        }
    )
    nobody = cast("Cluster", None)
    places: dict[str, Any] = {"default_workspace": default, "workspaces_below": below}
    return KubernetesStore(
        nobody, backfills, ("team-a", "july"), "u", default_run_in=run_in, **places
    ).load()


@pytest.mark.parametrize(
    "workspace",
    [
        "s3://lake/work/team-b",
        "s3://lake/prod",
        "s3://lake/work/team-ab",
        "s3://lake",
        "gs://lake/work/team-a",
        "/work/team-a",
    ],
)
def test_another_namespaces_part_is_refused_with_what_to_write(workspace: str) -> None:
    with pytest.raises(
        BadInput,
        match=(
            r"spec\.workspace: .* is not below s3://lake/work/team-a, .* use s3://lake/work/team-a"
        ),
    ):
        load(workspace=workspace)


@pytest.mark.parametrize(
    "workspace", ["s3://lake/work/team-a", "s3a://lake/work/team-a/deep", "s3://lake/work"]
)
def test_its_own_part_is_taken(workspace: str) -> None:
    assert load(workspace=workspace)


def test_the_operators_default_is_taken_where_it_is_cut_into_the_same_parts() -> None:
    assert load(default=BELOW)
    with pytest.raises(BadInput, match="is not below"):
        load(default="s3://lake/elsewhere")


def test_who_plans_in_pods_of_its_own_chooses() -> None:
    assert load(workspace="s3://own/bucket", planning={"runIn": "Pod"})
    assert load(below=None, workspace="s3://own/bucket")


def test_files_are_exported_within_the_same_part() -> None:
    def asked(location: str) -> dict[str, Any]:
        publish = {"mode": "Export", "location": location}
        outputs = [{"name": "plays", "table": "lake.raw.plays", "publish": publish}]
        return {"workspace": "s3://lake/work/team-a", "outputs": outputs}

    assert load(**asked("s3a://lake/work/team-a/plays"))
    assert load(**asked("s3a://lake/out"), planning={"runIn": "Pod"})
    for location in ("s3a://lake/work/team-b/plays", "s3a://lake/out", "/work/team-a"):
        with pytest.raises(BadInput) as refused:
            load(**asked(location))
        assert str(refused.value) == (
            f"spec.outputs[0].publish.location: {location} is not below s3://lake/work/team-a, the"
            " location for namespace team-a; use s3://lake/work/team-a or a directory below it,"
            " or set planning.runIn: Pod"
        )


def test_where_jobs_run_by_default_is_decided_when_the_backfill_is_read() -> None:
    in_pod = load(run_in="Pod", workspace="s3://own/bucket")
    assert in_pod
    assert in_pod.spec.planning.run_in == "Pod"
    with pytest.raises(BadInput, match="is not below"):
        load(run_in="Pod", workspace="s3://own/bucket", planning={"runIn": "Operator"})
    in_operator = load(workspace="s3://lake/work/team-a")
    assert in_operator
    assert in_operator.spec.planning.run_in == "Operator"


def test_a_secret_that_may_lack_a_credential_makes_no_difference() -> None:
    with pytest.raises(BadInput, match="is not below s3://lake/work/team-a"):
        load(workspace="s3://lake/prod", **SECRET)
    with pytest.raises(BadInput, match="is not below /mnt/shared/team-a"):
        load(below="/mnt/shared", workspace="/mnt/shared/team-b", **SECRET)
