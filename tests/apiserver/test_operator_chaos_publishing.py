"""The operator is killed at every write on the way to published outputs and back, and at every
commit: each is published once, and undone once.

Of the two outputs one is appended, the other one replaces the window's rows when a person has
approved it. Then the person asks to undo both. The driver is played, and stages its rows as Spark's
tasks do.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cut_commit import CutCommits
from mortal_run import MortalRun, MortalRuns, essence
from played import PlayedRun
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from rest import DECISIONS, Manifest

from backfill.kube.object_names import child_name
from backfill.outputs.earlier_publications import PUBLISHED_FROM, UNDONE
from backfill.outputs.result_names import Result
from staged import stage_rows
from table_jobs import CLICKS, HOURS, START

_LEAST_WRITES = 11
_LEAST_COMMITS = 6  # two publish, two undo, two remove a branch
_CUT_COMMITS_APART = 3
"""Enough for a commit that is late to arrive before the next one is cut."""
_OUTSIDE = {1: START - timedelta(hours=1), 2: START + timedelta(hours=HOURS)}
_WRONG = {3: START, 4: START + timedelta(minutes=90)}
"""Production's rows of the window."""
_STEPS = 6


class Outputs:
    """The tables of one run."""

    def __init__(self, run: PlayedRun):
        self.catalog = load_catalog("lake")
        self._namespace = f"{run.namespace}_{run.name}".replace("-", "_")
        self.catalog.create_namespace(self._namespace)
        self.tables = {name: self._made(name) for name in ("added", "corrected")}

    def spec(self) -> list[Manifest]:
        """As a Backfill says it."""
        return [
            self._output("added", {"mode": "Append"}),
            self._output("corrected", {"mode": "Replace"}),
        ]

    def stage(self, mortal: MortalRun, batch: int) -> None:
        """What the driver does with a micro-batch; after the last step comes one that has no rows
        here.
        """
        status, namespace = mortal.run.status, mortal.run.namespace
        rows = staged_rows(batch) if batch < _STEPS else {}
        for output, table in self.tables.items():
            uid = mortal.admin.get(mortal.run.path).expect()["metadata"]["uid"]
            result = Result(namespace, mortal.run.name, uid, status["planId"], output)
            assert stage_rows(table.refresh(), batch, arrow(rows), result=result)

    def assert_published_once(self, status: Manifest) -> None:
        """Each table has what it should have, from one snapshot, which is the one that the status
        names.
        """
        fresh = {at: time for batch in range(_STEPS) for at, time in staged_rows(batch).items()}
        named = {output["name"]: output["snapshotId"] for output in status["outputs"]}
        for name, kept in (("added", _OUTSIDE), ("corrected", _OUTSIDE)):
            table = self.tables[name].refresh()
            assert content(table) == kept | fresh, name
            assert publications(table) == [named[name]], name

    def assert_undone_once(self) -> None:
        """Each table has what it had, and one snapshot undid the publication."""
        before = {"added": _OUTSIDE, "corrected": _OUTSIDE | _WRONG}
        for name, table in self.tables.items():
            assert content(table.refresh()) == before[name], name
            undid = [named for named in summaries(table).values() if UNDONE in named]
            assert [named[UNDONE] for named in undid] == list(map(str, publications(table))), name

    def assert_nothing_left(self) -> None:
        """Neither branches, nor files that no snapshot of the table refers to."""
        for table in self.tables.values():
            assert list(table.refresh().metadata.refs) == ["main"]
            files = {
                path.removeprefix("file://")
                for path in table.inspect.all_files()["file_path"].to_pylist()
            }
            assert {
                str(path) for path in Path(table.location(), "data").rglob("*.parquet")
            } == files

    def _made(self, name: str) -> Table:
        table = self.catalog.create_table(f"{self._namespace}.{name}", schema=CLICKS)
        table.append(arrow(_OUTSIDE if name == "added" else _OUTSIDE | _WRONG))
        return table

    def _output(self, name: str, publish: Manifest) -> Manifest:
        return {
            "name": name,
            "table": ".".join(("lake", *self.tables[name].name())),
            "timestampColumn": "at",
            "publish": publish,
        }


def staged_rows(batch: int) -> dict[int, Any]:
    """Two rows of a step, by their ids."""
    at = START + timedelta(minutes=30 * batch)
    return {100 + 2 * batch: at, 101 + 2 * batch: at + timedelta(minutes=29)}


def arrow(rows: dict[int, Any]) -> pa.Table:
    return pa.table({"id": list(rows), "at": list(rows.values())}, schema=CLICKS)


def content(table: Table) -> dict[int, Any]:
    """All rows; an id that is there twice is an error."""
    found = table.scan().to_arrow().to_pylist()
    rows = {row["id"]: row["at"] for row in found}
    assert len(rows) == len(found), sorted(row["id"] for row in found)
    return rows


def publications(table: Table) -> list[int]:
    """The snapshots that published something, of the whole history."""
    return [number for number, named in summaries(table).items() if PUBLISHED_FROM in named]


def summaries(table: Table) -> dict[int, dict[str, str]]:
    """What the snapshots say of themselves, by their ids."""
    return {
        each.snapshot_id: dict(each.summary.additional_properties) if each.summary else {}
        for each in table.metadata.snapshots
    }


def decide(mortal: MortalRun, decision: str, name: str) -> None:
    """A person decides about the result."""
    result = mortal.run.status["result"]
    spec = {
        "backfill": mortal.run.name,
        "result": result,
        "decision": decision,
        "by": "jane",
        "reason": "as agreed",
    }
    manifest = {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "BackfillDecision",
        "metadata": {"name": name.format(result)},
        "spec": spec,
    }
    mortal.admin.create(DECISIONS.format(mortal.run.namespace), manifest).expect()


def replay(mortal: MortalRun, outputs: Outputs) -> None:
    """The driver of the one attempt commits all steps."""
    mortal.start(1)
    assert mortal.run.assignment()["steps"] == _STEPS
    for step in range(1, _STEPS + 1):
        mortal.work_until(lambda due=step: mortal.released(1) >= due, f"step {step} is released")
        outputs.stage(mortal, step - 1)
        mortal.run.report(1, step)
    outputs.stage(mortal, _STEPS)


def publish_both(mortal: MortalRun, outputs: Outputs) -> Manifest:
    """From the resource to published outputs. The status before the deletion."""
    mortal.run.create(outputs=outputs.spec())
    with mortal.spared():
        replay(mortal, outputs)
    mortal.finish(1)
    waits = ("Unknown", "WaitingForApproval")
    mortal.work_until(lambda: mortal.run.condition("Published") == waits, "it waits for a person")
    assert publications(outputs.tables["corrected"].refresh()) == []
    decide(mortal, "Approve", "decision-{}")
    return mortal.succeed()


def undo_both(mortal: MortalRun) -> None:
    """From published outputs back to what the tables held."""
    decide(mortal, "Undo", "undo-{}-1")
    undone = ("False", "Undone")
    mortal.work_until(lambda: mortal.run.condition("Succeeded") == undone, "it is undone")
    status = mortal.run.status
    assert all("undoSnapshotId" in output for output in status["outputs"])
    assert (status["decision"]["by"], status["undo"]["by"]) == ("jane", "jane")


def assert_all_well(mortal: MortalRun, outputs: Outputs, status: Manifest) -> None:
    name = mortal.run.name
    assert mortal.written.children(name) == [child_name(name, 1)]
    outputs.assert_published_once(status)
    undo_both(mortal)
    outputs.assert_undone_once()
    mortal.delete()
    outputs.assert_undone_once()
    outputs.assert_nothing_left()


@pytest.mark.parametrize("moment", ["before", "after", "late"])
def test_an_operator_killed_at_any_write_publishes_each_output_once(
    moment: str, mortal_runs: MortalRuns
) -> None:
    life = mortal_runs.life("published")
    for cut, mortal in mortal_runs.each_cut(life, moment, _LEAST_WRITES):
        outputs = Outputs(mortal.run)
        status = publish_both(mortal, outputs)
        life.assert_ends(essence(status), cut)
        assert_all_well(mortal, outputs, status)


@pytest.mark.parametrize("moment", ["before", "after", "late", "too late"])
def test_an_operator_killed_at_any_commit_publishes_each_output_once(
    moment: str, mortal_runs: MortalRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = mortal_runs.life("published")
    for number in range(1 if life.commits else 0, 1 + _CUT_COMMITS_APART):
        mortal = mortal_runs.undisturbed(number)
        outputs = Outputs(mortal.run)
        cuts = list(range(number - 1, life.commits, _CUT_COMMITS_APART)) if number else []
        cut = CutCommits(cuts, moment, outputs.catalog)
        with monkeypatch.context() as patch:
            cut.install(patch)
            status = publish_both(mortal, outputs)
            life.assert_ends(essence(status), f"cut {moment} commits {cuts}")
            assert_all_well(mortal, outputs, status)
        mortal.written.assert_sound()
        assert cut.struck == cuts
        assert mortal.operators.deaths == len(cuts)
        life.commits = life.commits or cut.made
    assert life.commits >= _LEAST_COMMITS
