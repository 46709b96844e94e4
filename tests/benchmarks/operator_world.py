"""A cluster's worth of Backfills as an operator finds them: most have succeeded long ago, some are
being read.
"""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat

from rest import BACKFILLS, SPARK_APPLICATIONS, SPLIT_ASSIGNMENTS, Manifest, Rest

from backfill.api.backfill import Backfill
from backfill.api.quantities import format_time, to_us
from backfill.api.spec import OrderingPolicy
from backfill.controller.children.child_manifests import child_manifests
from backfill.controller.cluster.plan_config_map import APPLICATION_KEY, HEADER_KEY, config_map_name
from backfill.controller.driver import Launch
from backfill.kube.object_names import FINALIZER, backfill_labels, child_name, owner_reference
from backfill.kube.packed_json import packed, unpacked
from backfill.planning.plan import (
    PlanHeader,
    PlanInputs,
    Proof,
    SourceInput,
    SourceTotals,
    header_digest,
)
from backfill.planning.workspace import Workspace
from manifests import spark_application

STEPS = 500
STEP = timedelta(minutes=5)
STEP_ROWS = 100_000
START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCES = ("impressions", "playbacks")
NAMESPACES = 10
WORKSPACE = "s3://lake/backfills"
_PODS = "api/v1/namespaces/{}/pods"
_CONFIG_MAPS = "api/v1/namespaces/{}/configmaps"
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Placed:
    """One Backfill that is there."""

    namespace: str
    name: str
    uid: str
    active: bool


class World:
    """Makes everything that a Backfill has: itself, its SplitAssignment, its plan, one child and
    that one's driver pod.
    """

    def __init__(self, admin: Rest):
        self._admin = admin
        self._header = header()
        self._now = format_time(datetime.now(UTC).replace(microsecond=0))

    def fill(self, backfills: int, active: int) -> list[Placed]:
        """Spread over namespaces that are made for it."""
        for number in range(NAMESPACES):
            self._make_namespace(namespace_of(number))
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(self._place, range(backfills), repeat(active)))

    def versions(self) -> dict[str, str]:
        """The version of every object that an operator could have written."""
        kinds = (BACKFILLS, SPLIT_ASSIGNMENTS, SPARK_APPLICATIONS, _CONFIG_MAPS, _PODS)
        collections = (kind.replace("namespaces/{}/", "") for kind in kinds)
        return {
            f"{collection} {each['metadata']['uid']}": each["metadata"]["resourceVersion"]
            for collection in collections
            for each in self._admin.get(collection).expect()["items"]
        }

    def _make_namespace(self, name: str) -> None:
        self._admin.create("api/v1/namespaces", {"metadata": {"name": name}}).expect()
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self._admin.apply(f"api/v1/namespaces/{name}/serviceaccounts/default", account).expect()
        self._admin.create(SPARK_APPLICATIONS.format(name), production()).expect()

    def _place(self, number: int, active: int) -> Placed:
        namespace, name = namespace_of(number), f"backfill-{number:04}"
        made = self._admin.create(BACKFILLS.format(namespace), backfill(name)).expect()
        placed = Placed(namespace, name, made["metadata"]["uid"], number < active)
        owned = {
            "ownerReferences": [owner_reference(name, placed.uid)],
            "labels": backfill_labels(name),
        }
        self._create(_CONFIG_MAPS, placed, self._plan(name, owned))
        self._create(SPLIT_ASSIGNMENTS, placed, self._assignment(placed, owned))
        self._run(placed, Backfill.model_validate(_readable(made)))
        self._say(BACKFILLS, placed, name, self._status(placed))
        return placed

    def _run(self, placed: Placed, resource: Backfill) -> None:
        workspace = Workspace(WORKSPACE)
        launch = Launch(
            1,
            resource,
            self._header.plan_id,
            workspace.child("plans"),
            workspace.child("checkpoints"),
        )
        child = child_manifests(
            launch, production() | {"metadata": {"name": "app", "namespace": placed.namespace}}
        )[1]
        state = "RUNNING" if placed.active else "COMPLETED"
        driver = child_name(placed.name, 1)
        self._create(SPARK_APPLICATIONS, placed, child)
        self._say(
            SPARK_APPLICATIONS,
            placed,
            driver,
            {"applicationState": {"state": state}, "driverInfo": {}},
        )
        self._create(_PODS, placed, driver_pod(child))
        self._say(_PODS, placed, f"{driver}-driver", self._pod_status(placed.active))

    def _create(self, collection: str, placed: Placed, manifest: Manifest) -> None:
        self._admin.create(collection.format(placed.namespace), manifest).expect()

    def _say(self, collection: str, placed: Placed, name: str, status: Manifest) -> None:
        self._admin.patch(
            f"{collection.format(placed.namespace)}/{name}/status", {"status": status}
        ).expect()

    def _plan(self, name: str, owned: Manifest) -> Manifest:
        content = {
            HEADER_KEY: packed(self._header.to_manifest()),
            APPLICATION_KEY: packed(production()),
        }
        data = {key: base64.b64encode(value).decode() for key, value in content.items()}
        return {"metadata": {"name": config_map_name(name), **owned}, "binaryData": data}

    def _assignment(self, placed: Placed, owned: Manifest) -> Manifest:
        spec = {
            "backfill": placed.name,
            "planId": self._header.plan_id,
            "attempt": 1,
            "steps": STEPS,
        }
        progress = {"released": 0 if placed.active else STEPS, "watermark": format_time(START)}
        return {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "SplitAssignment",
            "metadata": {"name": placed.name, **owned},
            "spec": spec | progress,
        }

    def _status(self, placed: Placed) -> Manifest:
        attempt = {"number": 1, "child": child_name(placed.name, 1), "startedAt": self._now}
        sources = [
            {"name": name, "files": 1000, "rows": STEPS * STEP_ROWS, "bytes": 10**9}
            for name in SOURCES
        ]
        status = {
            "planId": self._header.plan_id,
            "planDigest": header_digest(unpacked(packed(self._header.to_manifest()))),
            "applicationDigest": header_digest(unpacked(packed(production()))),
            "workspace": WORKSPACE,
            "sources": sources,
            "startedAt": self._now,
        }
        if placed.active:
            return status | {
                "attempts": [attempt],
                "conditions": list(self._conditions({"Planned": ("True", "PlanReady")})),
            }
        reached = {
            "Planned": ("True", "PlanReady"),
            "Running": ("False", "AllStepsCommitted"),
            "Published": ("True", "Published"),
            "Succeeded": ("True", "Finished"),
            "Ready": ("True", "Finished"),
        }
        progress = {
            "steps": STEPS,
            "committed": STEPS,
            "summary": f"{STEPS}/{STEPS} (100%)",
            "rowsRead": 2 * STEPS * STEP_ROWS,
        }
        ended = {
            "attempts": [attempt | {"outcome": "Succeeded", "finishedAt": self._now}],
            "finishedAt": self._now,
        }
        return (
            status
            | ended
            | {
                "observedGeneration": 1,
                "progress": progress,
                "conditions": list(self._conditions(reached)),
            }
        )

    def _conditions(self, reached: dict[str, tuple[str, str]]) -> Iterator[Manifest]:
        for kind, (status, reason) in reached.items():
            told = {
                "message": "as it was told then",
                "lastTransitionTime": self._now,
                "observedGeneration": 1,
            }
            yield {"type": kind, "status": status, "reason": reason, **told}

    def _pod_status(self, active: bool) -> Manifest:
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": self._now}}
        state = {"running": {"startedAt": self._now}} if active else ended
        container = {
            "name": "spark-kubernetes-driver",
            "image": "none",
            "imageID": "",
            "ready": active,
            "restartCount": 0,
        }
        return {
            "phase": "Running" if active else "Succeeded",
            "containerStatuses": [container | {"state": state}],
        }


def namespace_of(number: int) -> str:
    """Where the Backfill of a number is."""
    return f"streaming-{number % NAMESPACES}"


def header() -> PlanHeader:
    """A plan of two sources, five minutes a step."""
    start, step, end = to_us(START), round(STEP.total_seconds() * 1e6), to_us(START + STEPS * STEP)
    fields = {
        "table_uuid": "8c6f2f5e-7d43-4b14-a7a5-1d6a6f3f1d11",
        "snapshot_id": 7051729675574597004,
        "schema_id": 0,
    }
    column = {
        "timestamp_column": "ingestion_ts",
        "timestamp_field_id": 1,
        "timestamp_type": "timestamptz",
    }
    inputs = PlanInputs(
        start_us=start,
        end_us=end,
        policy=OrderingPolicy.WITHIN_LATENESS,
        allowed_lateness_us=step,
        max_misalignment_us=2 * step,
        target_step_bytes=2**30,
        parallelism=40,
        sources=tuple(
            SourceInput(name=name, table=f"lake.raw.{name}", **fields, **column) for name in SOURCES
        ),
    )
    rows = tuple(STEP_ROWS + step % 1000 for step in range(STEPS))
    totals = {
        "files": 1000,
        "splits": 2000,
        "rows": sum(rows),
        "bytes": 100 * sum(rows),
        "wide_files": 0,
        "step_rows": rows,
    }
    sources = (
        SourceTotals(name=name, **totals, step_bytes=tuple(100 * each for each in rows))
        for name in SOURCES
    )
    return PlanHeader(
        plan_id=inputs.plan_id(),
        inputs=inputs,
        step_starts_us=tuple(range(start, end, step)),
        step_ends_us=tuple(range(start + step, end + step, step)),
        sources=tuple(sources),
        proof=Proof(greatest_disorder_us=0, greatest_misalignment_us=2 * step),
    )


def backfill(name: str) -> Manifest:
    """One of them."""
    sources = [
        {"name": each, "table": f"lake.raw.{each}", "timestampColumn": "ingestion_ts"}
        for each in SOURCES
    ]
    window = {"start": format_time(START), "end": format_time(START + STEPS * STEP)}
    return {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "Backfill",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {
            "applicationRef": {"name": "app"},
            "window": window,
            "sources": sources,
            "maxMisalignment": "10m",
            "outputs": [{"name": "summary", "table": "lake.ops.summary", "timestampColumn": "at"}],
            "scaling": {"minExecutors": 2, "maxExecutors": 40},
            "workspace": WORKSPACE,
        },
    }


def production() -> Manifest:
    """The application that all of them run."""
    pod = {
        "cores": 1,
        "memory": "4g",
        "labels": {"team": "streaming"},
        "env": [{"name": "REGION", "value": "us"}],
    }
    return spark_application(
        image="registry.example.com/streaming/app:1",
        mainApplicationFile="local:///opt/app/main.py",
        driver=pod | {"serviceAccount": "spark"},
        executor=pod | {"instances": 4},
    )


def driver_pod(child: Manifest) -> Manifest:
    """As a Spark operator makes it, with the container of the child's template."""
    template = child["spec"]["driver"]["template"]["spec"]["containers"][0]
    container = {"name": "spark-kubernetes-driver", "image": "none", "env": template.get("env", [])}
    labels = child["spec"]["driver"]["labels"] | {"spark-role": "driver"}
    metadata = {"name": f"{child['metadata']['name']}-driver", "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never"}}


def _readable(made: Manifest) -> Manifest:
    metadata = {key: made["metadata"][key] for key in ("name", "namespace", "uid", "generation")}
    return {"metadata": metadata, "spec": made["spec"]}
