"""CustomResourceDefinitions, generated from the resource models: names, printer columns,
subresources and schema.
"""

from dataclasses import dataclass
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.base import Model
from backfill.api.decision import BackfillDecision
from backfill.api.job_report import JobReport
from backfill.crd.schema import Schema, schema_of
from backfill.protocol.split_assignment import SplitAssignment

_GROUP, _VERSION = Backfill.model_fields["api_version"].default.split("/")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that ``kubectl get`` prints."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def to_manifest(self) -> Schema:
        """The column in the form of a definition."""
        shown = {"priority": 1} if self.wide else {}
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
            **shown,
        }


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since creation.", "date")
_CONDITION: Final = '.status.conditions[?(@.type=="{}")].{}'

_BACKFILL_COLUMNS: Final = (
    Column("Progress", ".status.progress.summary", "Committed steps out of total."),
    Column(
        "Watermark",
        ".status.watermark",
        "Global watermark: all rows that arrived before it have been read and committed.",
    ),
    Column("Rate", ".status.progress.rate", "Recent read rate, in rows per second."),
    Column("ETA", ".status.progress.eta", "Estimated time of completion."),
    Column("Attempt", ".status.attempts[-1:].number", "Number of the latest attempt.", "integer"),
    Column("Stage", _CONDITION.format("Ready", "reason"), "Current stage."),
    Column(
        "Succeeded", _CONDITION.format("Succeeded", "status"), "Whether the Backfill has succeeded."
    ),
    _AGE,
    Column(
        "Application",
        ".spec.applicationRef.name",
        "Production SparkApplication to run on history.",
        wide=True,
    ),
    Column("Start", ".spec.window.start", "Start of the window, inclusive.", wide=True),
    Column("End", ".spec.window.end", "End of the window, exclusive.", wide=True),
    Column(
        "Executors",
        ".status.progress.executors",
        "Number of running executors.",
        "integer",
        wide=True,
    ),
    Column("Steps", ".status.progress.steps", "Number of steps in the plan.", "integer", wide=True),
    Column("Plan", ".status.planId", "ID of the plan.", wide=True),
)
_ASSIGNMENT_COLUMNS: Final = (
    Column(
        "Attempt", ".spec.attempt", "Number of the attempt that the assignment is for.", "integer"
    ),
    Column("Released", ".spec.released", "Number of steps that may be read.", "integer"),
    Column("Steps", ".spec.steps", "Number of steps in the plan.", "integer"),
    Column("Phase", ".status.phase", "Phase of the driver."),
    Column("Heartbeat", ".status.heartbeat", "Time since the driver's last heartbeat.", "date"),
    _AGE,
)
_DECISION_COLUMNS: Final = (
    Column("Backfill", ".spec.backfill", "Name of the Backfill."),
    Column("Decision", ".spec.decision", "The decision: Approve, Reject or Undo."),
    Column("By", ".spec.by", "User who made the decision."),
    Column("Reason", ".spec.reason", "Why."),
    _AGE,
)
_REPORT_COLUMNS: Final = (
    Column("Backfill", ".spec.backfill", "Name of the Backfill that the job belongs to."),
    Column(
        "Job",
        ".spec.job",
        "The job: resolve, plan, extend, recover, verify, settle, publish, undo or discard.",
    ),
    _AGE,
)


def backfill_definition() -> Schema:
    """The definition of ``Backfill``."""
    names = {
        "plural": "backfills",
        "singular": "backfill",
        "shortNames": ["bf"],
        "categories": ["all"],
    }
    scale = {
        "specReplicasPath": ".spec.scaling.maxExecutors",
        "statusReplicasPath": ".status.progress.executors",
    }
    return _definition(Backfill, names, _BACKFILL_COLUMNS, {"status": {}, "scale": scale})


def split_assignment_definition() -> Schema:
    """The definition of ``SplitAssignment``."""
    names = {"plural": "splitassignments", "singular": "splitassignment"}
    return _definition(SplitAssignment, names, _ASSIGNMENT_COLUMNS, {"status": {}})


def decision_definition() -> Schema:
    """The definition of ``BackfillDecision``."""
    names = {"plural": "backfilldecisions", "singular": "backfilldecision"}
    return _definition(BackfillDecision, names, _DECISION_COLUMNS, {})


def job_report_definition() -> Schema:
    """The definition of ``JobReport``."""
    return _definition(
        JobReport,
        {"plural": "jobreports", "singular": "jobreport"},
        _REPORT_COLUMNS,
        {"status": {}},
    )


def _definition(
    model: type[Model], names: Schema, columns: tuple[Column, ...], subresources: Schema
) -> Schema:
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
