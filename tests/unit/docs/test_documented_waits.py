"""The troubleshooting guide says for how long the operator waits, and it waits for so long."""

import re
from datetime import timedelta

import pytest

from backfill.controller.cluster.job_pods.pod_manifests import LONGEST_SECONDS
from backfill.controller.cluster.job_pods.runner import START_SECONDS
from backfill.controller.decisions import deleting as removing
from backfill.controller.decisions import job_retries as work
from backfill.controller.decisions.plan import planning
from backfill.controller.decisions.result import finished as resting
from backfill.controller.decisions.run import attempts
from backfill.controller.decisions.run import pending_driver as pending
from backfill.controller.decisions.run import silent_driver as silence
from backfill.controller.decisions.run import suspending as stopping
from backfill.iceberg import open_tables
from backfill.outputs import table_commits
from repository import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
SECTION = PAGE.partition("## How long the operator waits")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", SECTION, re.MULTILINE)
UNITS = {"s": "seconds", "second": "seconds", "minute": "minutes", "hour": "hours", "day": "days"}
WAITS = {
    "a Spark operator that picks up the child": [pending.UNTAKEN_LIMIT, pending.UNTAKEN_NOTICE],
    "a driver pod of a child that was submitted": [pending.SUBMITTED_LIMIT],
    "capacity on a node": [pending.UNSCHEDULED_LIMIT],
    "an image that cannot be pulled": [pending.BROKEN_LIMIT],
    "a quota that rejects the driver's pod": [attempts.QUOTA_RETRY],
    "a pod that has a node and is starting": [pending.STARTING_LIMIT],
    "the first report": [timedelta(seconds=silence.FIRST_REPORT_LIMIT_SECONDS)],
    "a driver that was asked to stop": [stopping.STOP_LIMIT],
    "a driver that was killed": [attempts.END_LIMIT],
    "a catalog or object store that does not respond": [
        work.PATIENCE,
        work.FIRST_RETRY,
        work.LONGEST_RETRY,
    ],
    "a catalog that answers": [timedelta(seconds=open_tables._AWAY_SECONDS)],
    "a catalog that is unavailable while": [timedelta(seconds=table_commits._AWAY_SECONDS)],
    "a job's pod": [
        pending.UNSCHEDULED_LIMIT,
        timedelta(seconds=START_SECONDS),
        timedelta(seconds=LONGEST_SECONDS),
    ],
    "a missing SparkApplication, before planning": [planning.APPLIED_WITHIN],
    "the removal of what a finished Backfill made": [resting.REMOVAL_PATIENCE],
    "the removal of what a deleted Backfill made": [
        removing.REMOVAL_LIMIT,
        removing.WORKING_LIMIT,
    ],
}


def lengths(text: str) -> list[timedelta]:
    """The lengths of time that a text names."""
    found = re.findall(rf"\b(\d+|a) ({'|'.join(UNITS)})", text)
    return [
        timedelta(**{UNITS[unit]: 1 if number == "a" else int(number)}) for number, unit in found
    ]


@pytest.mark.parametrize("what", WAITS)
def test_the_figures_of_the_page_are_the_programs(what: str) -> None:
    (said,) = [how_long for row, how_long in ROWS if row.startswith(what)]
    assert lengths(said) == WAITS[what]


def test_no_other_row_has_a_figure() -> None:
    figures = [row for row, how_long in ROWS if lengths(how_long)]
    assert [row for row in figures if not row.startswith(tuple(WAITS))] == []
    assert len(figures) == len(WAITS)
