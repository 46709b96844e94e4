"""What ``kubectl get`` and ``kubectl scale`` see."""

from rest import BACKFILLS, SPLIT_ASSIGNMENTS, Rest
from samples import ASSIGNMENT, BACKFILL, CONDITION, STATUS

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def shown(admin: Rest, path: str, wide: bool = False) -> dict[str, object]:
    """The columns of the only object, as kubectl prints them."""
    table = admin.get(path, accept=TABLE).expect()
    (row,) = table["rows"]
    columns = zip(table["columnDefinitions"], row["cells"], strict=True)
    return {column["name"]: cell for column, cell in columns if wide or column["priority"] == 0}


def test_a_backfill_shows_how_far_it_is(admin: Rest, crds: None, namespace: str) -> None:
    collection = BACKFILLS.format(namespace)
    admin.create(collection, BACKFILL).expect()
    ready = CONDITION | {"type": "Ready", "reason": "Replaying", "message": "attempt 2 is reading"}
    admin.patch(
        f"{collection}/july/status", {"status": STATUS | {"conditions": [CONDITION, ready]}}
    ).expect()
    columns = shown(admin, collection)
    assert columns.pop("Age")
    assert columns == {
        "Name": "july",
        "Progress": "12/48 (25%)",
        "Watermark": "2021-07-11T06:00:00Z",
        "Rate": "12.5k/s",
        "ETA": None,
        "Attempt": 2,
        "Stage": "Replaying",
        "Succeeded": "Unknown",
    }


def test_a_wide_list_shows_what_is_run(admin: Rest, crds: None, namespace: str) -> None:
    collection = BACKFILLS.format(namespace)
    admin.create(collection, BACKFILL).expect()
    admin.patch(f"{collection}/july/status", {"status": STATUS}).expect()
    wide = shown(admin, collection, wide=True)
    assert {
        "Application": "rmi",
        "Executors": 3,
        "Steps": 48,
        "Plan": "0123456789abcdef",
    }.items() <= wide.items()


def test_a_backfill_without_a_status_is_shown_as_well(
    admin: Rest, crds: None, namespace: str
) -> None:
    admin.create(BACKFILLS.format(namespace), BACKFILL).expect()
    assert shown(admin, BACKFILLS.format(namespace))["Progress"] is None


def test_an_assignment_shows_what_is_released(admin: Rest, crds: None, namespace: str) -> None:
    admin.create(SPLIT_ASSIGNMENTS.format(namespace), ASSIGNMENT).expect()
    columns = shown(admin, SPLIT_ASSIGNMENTS.format(namespace))
    assert (columns["Attempt"], columns["Released"], columns["Steps"]) == (2, 12, 48)


def test_scaling_a_backfill_sets_how_many_executors_it_may_use(
    admin: Rest, crds: None, namespace: str
) -> None:
    collection = BACKFILLS.format(namespace)
    admin.create(collection, BACKFILL).expect()
    admin.patch(f"{collection}/july/status", {"status": STATUS}).expect()
    scale = admin.patch(f"{collection}/july/scale", {"spec": {"replicas": 7}}).expect()
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (7, 3)
    assert admin.get(f"{collection}/july").expect()["spec"]["scaling"]["maxExecutors"] == 7


def test_a_backfill_is_found_by_its_short_name(admin: Rest, crds: None) -> None:
    resources = admin.get("apis/backfill.dev/v1alpha1").expect()["resources"]
    (backfills,) = [resource for resource in resources if resource["name"] == "backfills"]
    assert (backfills["shortNames"], backfills["categories"]) == (["bf"], ["all"])
