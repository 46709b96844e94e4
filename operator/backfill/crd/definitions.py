"""CustomResourceDefinitions, made from the resource models: names, columns, subresources, and the schema of the fields."""

from dataclasses import dataclass
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.base import Model
from backfill.api.job_report import JobReport
from backfill.crd.schema import Schema, schema_of
from backfill.protocol.split_assignment import SplitAssignment

_GROUP, _VERSION = Backfill.model_fields["api_version"].default.split("/")


@dataclass(frozen=True, slots=True)
class Column:
    """What ``kubectl get`` shows."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def to_manifest(self) -> Schema:
        """The column as it stands in a definition."""
        shown = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, "description": self.description, **shown}


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "When it was created.", "date")
_CONDITION: Final = '.status.conditions[?(@.type=="{}")].{}'

_BACKFILL_COLUMNS: Final = (
    Column("Progress", ".status.progress.summary", "Committed steps out of total."),
    Column("Watermark", ".status.watermark", "Everything that arrived before it is read and committed."),
    Column("Rate", ".status.progress.rate", "Rows read per second of late."),
    Column("ETA", ".status.progress.eta", "When the run is expected to finish."),
    Column("Attempt", ".status.attempts[-1:].number", "The last run of the application.", "integer"),
    Column("Stage", _CONDITION.format("Ready", "reason"), "Current stage."),
    Column("Succeeded", _CONDITION.format("Succeeded", "status"), "Whether all that was wanted is done."),
    _AGE,
    Column("Application", ".spec.applicationRef.name", "The production application that is run again.", wide=True),
    Column("Start", ".spec.window.start", "The first moment of the window.", wide=True),
    Column("End", ".spec.window.end", "The end of the window.", wide=True),
    Column("Executors", ".status.progress.executors", "Executors at work.", "integer", wide=True),
    Column("Steps", ".status.progress.steps", "Steps of the plan.", "integer", wide=True),
    Column("Plan", ".status.planId", "The plan.", wide=True),
)
_ASSIGNMENT_COLUMNS: Final = (
    Column("Attempt", ".spec.attempt", "The attempt that may act on it.", "integer"),
    Column("Released", ".spec.released", "How many steps may be read.", "integer"),
    Column("Steps", ".spec.steps", "Steps of the plan.", "integer"),
    Column("Phase", ".status.phase", "What the driver does."),
    Column("Heartbeat", ".status.heartbeat", "How long ago the driver last wrote.", "date"),
    _AGE,
)
_REPORT_COLUMNS: Final = (
    Column("Backfill", ".spec.backfill", "The Backfill that the job belongs to."),
    Column("Job", ".spec.job", "What the job does."),
    _AGE,
)


def backfill_definition() -> Schema:
    """The definition of ``Backfill``."""
    names = {"plural": "backfills", "singular": "backfill", "shortNames": ["bf"], "categories": ["all"]}
    scale = {"specReplicasPath": ".spec.scaling.maxExecutors", "statusReplicasPath": ".status.progress.executors"}
    return _definition(Backfill, names, _BACKFILL_COLUMNS, {"status": {}, "scale": scale})


def split_assignment_definition() -> Schema:
    """The definition of ``SplitAssignment``."""
    names = {"plural": "splitassignments", "singular": "splitassignment"}
    return _definition(SplitAssignment, names, _ASSIGNMENT_COLUMNS, {"status": {}})


def job_report_definition() -> Schema:
    """The definition of ``JobReport``."""
    return _definition(JobReport, {"plural": "jobreports", "singular": "jobreport"}, _REPORT_COLUMNS, {"status": {}})


def _definition(model: type[Model], names: Schema, columns: tuple[Column, ...], subresources: Schema) -> Schema:
    kind = model.__name__
    version = {
        "name": _VERSION,
        "served": True,
        "storage": True,
        "subresources": subresources,
        "additionalPrinterColumns": [column.to_manifest() for column in columns],
        "schema": {"openAPIV3Schema": schema_of(model)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", **names},
            "versions": [version],
        },
    }
