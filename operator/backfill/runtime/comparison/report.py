"""The report of a comparison, in the workspace beside the plan: JSON for programs, and a page for
people.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from backfill.api.approval import exceeds
from backfill.api.drain import how_to_close
from backfill.api.output import Output, PublishMode, Validate
from backfill.api.quantities import format_time, from_us, to_us
from backfill.api.status import Comparison, WindowLosses
from backfill.api.validation import percentage, reaches, settings_digest
from backfill.planning.workspace import Workspace
from backfill.protocol.driver_settings import CLUSTER_CHANNEL
from backfill.runtime.comparison.count_matches import KINDS, Found, Repeated, Sample
from backfill.runtime.comparison.mismatch_causes import causes
from backfill.runtime.comparison.report_page import page
from backfill.runtime.comparison.uniform_changes import is_explained, stored_changes
from backfill.runtime.settings import RuntimeSettings

_DIRECTORY = "comparison"


@dataclass(frozen=True, slots=True)
class Clues:
    """What the run knows that may explain why rows do not match."""

    missing_input: tuple[str, ...] = ()
    """What the sources lack, in words."""
    input_notes: tuple[str, ...] = ()
    """What else was seen in the sources, in words, such as rows that are there twice."""
    by_clock: str = ""
    """Where the query compares with the current time; empty if nowhere."""
    dropped_late: int = 0
    """Number of rows that the application's watermark has dropped in this run."""
    arrived_late: int = 0
    """Number of rows that a stream would have dropped, and batch jobs of this run have read."""
    open_at_end: int = 0
    """Number of results of the window that were still open when the input ended."""
    open_from: datetime | None = None
    """Time of the earliest one, if it is known."""
    needed_drain_seconds: float | None = None
    """A drain that is longer than this would have closed them."""
    not_final: bool = False
    """Whether the result has them, with values that are not final."""


@dataclass(frozen=True)
class Report:
    """What was compared, and how it compares."""

    settings: RuntimeSettings
    output: Output
    found: Found
    stretch_us: int
    """Length of the stretches of time that figures are given for."""
    result_snapshot_id: int
    other_snapshot_id: int | None
    compared_at: datetime
    clues: Clues = Clues()
    only_in_reference: tuple[str, ...] = ()
    """Columns that are not compared, because only the reference has them."""
    losses: WindowLosses | None = None
    """What publishing would remove without replacement; None unless it replaces rows."""

    def write(self, plan: Workspace) -> str:
        """Writes the report, and returns the location of the page. The JSON file is beside it."""
        directory, document = plan.child(_DIRECTORY), self.document()
        directory.write(f"{self.output.name}.json", json.dumps(document, indent=2).encode())
        directory.write(f"{self.output.name}.html", page(document).encode())
        return directory.child(f"{self.output.name}.html").uri

    def document(self) -> dict[str, Any]:
        """The report in its stored form."""
        return self._document

    @cached_property
    def _document(self) -> dict[str, Any]:
        document = self._figures()
        document["explained"] = is_explained(document)
        return {**document, "causes": causes(document)}

    def _figures(self) -> dict[str, Any]:
        found, wanted, window = (
            self.found,
            self.output.validate_ or Validate(),
            self.settings.window,
        )
        counts = found.counts
        compared = Comparison(settings=settings_digest(self.output), **asdict(counts))
        wanted = wanted.model_copy(update={"keys": self.output.compared_keys})
        other = "production" if self.output.reference is None else "reference"
        only_there = {"columnsOnlyInReference": self.only_in_reference}
        return {
            "backfill": self.settings.backfill,
            "namespace": self.settings.namespace,
            "output": self.output.name,
            "table": self.output.table,
            "window": {"start": format_time(window.start), "end": format_time(window.end)},
            "comparedAt": format_time(self.compared_at),
            "resultSnapshotId": self.result_snapshot_id,
            f"{other}SnapshotId": self.other_snapshot_id,
            "validate": wanted.to_manifest(),
            "match": percentage(compared),
            "reachesMinMatch": reaches(compared, wanted.min_match),
            "rows": {
                "result": counts.matching + counts.different + counts.extra,
                other: counts.matching + counts.different + counts.missing,
                **asdict(counts),
            },
            "duplicateKeys": {
                "result": found.duplicate_keys_in_result,
                other: found.duplicate_keys_in_other,
            },
            "missingInput": self.clues.missing_input,
            "inputNotes": self.clues.input_notes,
            "byClock": self.clues.by_clock,
            "rowsDroppedLate": self.clues.dropped_late,
            "rowsArrivedLate": self.clues.arrived_late,
            "openAtEnd": self._open_at_end(),
            **(only_there if self.output.reference else {}),
            "losses": self._losses(),
            "pairs": found.pairs,
            "byColumn": found.columns,
            "changes": stored_changes(found),
            "byTime": [
                {
                    "number": number,
                    "start": format_time(from_us(to_us(window.start) + number * self.stretch_us)),
                    **asdict(found.buckets[number]),
                    "repeated": asdict(found.repeated.get(number, Repeated())),
                }
                for number in sorted(found.buckets)
            ],
            "stretchSeconds": self.stretch_us // 1_000_000,
            "stretches": -(-(to_us(window.end) - to_us(window.start)) // self.stretch_us),
            "samples": [
                {
                    "kind": sample.kind,
                    "result": sample.result,
                    other: sample.other,
                    "differs": sample.differs,
                }
                for sample in sorted(found.samples, key=self._place)
            ],
            "commands": self._commands(),
        }

    def _place(self, sample: Sample) -> tuple[int, int, str]:
        """Orders samples of one kind by time. Numbers of few digits come first."""
        row = sample.result or sample.other or {}
        time = row.get(self.output.timestamp_column or "") or ""
        return KINDS.index(sample.kind), len(time) if time.isdigit() else 0, time

    def _commands(self) -> dict[str, str]:
        """How a person decides about the result; empty if it is not published."""
        if self.output.publish.mode is PublishMode.NONE:
            return {}
        settings = self.settings
        on_cluster = settings.channel.startswith(CLUSTER_CHANNEL)
        program = "kubectl backfill" if on_cluster else "backfill"
        place = f" -n {settings.namespace}" if on_cluster or settings.namespace != "default" else ""
        return {
            verb: f'{program} {verb} {settings.backfill}{place} --reason "..."'
            for verb in ("approve", "reject")
        }

    def _losses(self) -> dict[str, Any] | None:
        if self.losses is None:
            return None
        allowed = self.output.publish.max_loss
        stretches = [
            {**each.to_manifest(), "exceedsMaxLoss": exceeds(each, allowed)}
            for each in self.losses.stretches
        ]
        return {**self.losses.to_manifest(), "maxLoss": allowed, "stretches": stretches}

    def _open_at_end(self) -> dict[str, object]:
        known = self.clues
        return {
            "results": known.open_at_end,
            "from": None if known.open_from is None else format_time(known.open_from),
            "notFinal": known.not_final,
            "remedy": how_to_close(
                known.open_at_end, known.needed_drain_seconds, self.settings.window
            ),
        }
