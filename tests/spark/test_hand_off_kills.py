"""History's driver is killed in every phase of the hand-off, in one attempt after the other: what is
left in the end is what an undisturbed run leaves, and live traffic goes on from it, also if its
driver is killed in its first micro-batch.
"""

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from drivers import (
    assign,
    committed,
    driver,
    kill_once,
    run_applications,
    status,
    wait_until,
)
from pyiceberg.catalog import Catalog
from test_hand_off import (
    COLUMNS,
    CREATE_TOPICS,
    HISTORY_ROWS,
    LIVE_ROWS,
    TWO_QUERIES,
    History,
    check_rows,
    production,
    rows_of,
)

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import plan_directory
from backfill.planning.plan_extension import extend_plan
from backfill.planning.planner import make_plan
from backfill.planning.workspace import Workspace
from backfill.protocol.hand_off_messages import HandOffReport
from backfill.runtime.hand_off.copy_checkpoint import MARKER
from backfill.runtime.settings import RuntimeSettings
from compacting import compact
from kafka_broker import Jars, find_jars, kafka_broker

_QUERIES = ("copies", "counts")
"""In the order in which the program starts them."""
_STATE_PARTITIONS = 3
"""Not as many as history has, so that state is repartitioned."""
_LARGE_BYTES = 1 << 28
"""Copied for long enough to be killed meanwhile."""
_MOST_TRIES = 5
"""Attempts to hit a phase that lasts milliseconds."""
_UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Attempts:
    """The attempts of one run, each in a driver of its own."""

    def __init__(self, history: History, settings: RuntimeSettings):
        self._header = history.header
        self.settings = settings
        home = Path(settings.main_file).parent
        self.origins = [home / "checkpoints" / query for query in _QUERIES]
        self.first, self.second = (home / "live/checkpoints" / query for query in _QUERIES)
        self.flush = str(history.header.steps)
        """Number of history's last batch."""
        self.repartitioned = str(history.header.steps + 1)

    def kill_once(self, condition: Callable[[], bool]) -> None:
        """Kills the driver with all of its processes, the JVM among them, once it holds."""
        with driver(self.settings) as process:
            kill_once(process, condition)
        attempt = self.settings.attempt + 1
        self.settings = self.settings.model_copy(update={"attempt": attempt})
        assign(self.settings, self._header, self._header.steps)

    def history_is_read(self) -> bool:
        """Whether both queries have committed their last batch."""
        return all((each / "commits" / self.flush).exists() for each in self.origins)

    def first_has_new_partitions(self) -> bool:
        """Whether Spark has repartitioned the state of the first query."""
        return (self.first / "commits" / self.repartitioned).exists()

    def first_has_offsets_of_kafka(self) -> bool:
        """Whether its offsets are no longer steps of history."""
        entry = self.first / "offsets" / self.repartitioned
        return entry.exists() and '"step"' not in entry.read_text()

    def reported(self) -> bool:
        """Whether the controller knows what was handed over."""
        report = status(self.settings).hand_off
        return report is not None and report.written


def placed(location: Path) -> bool:
    """Whether a checkpoint is complete, by its marker."""
    try:
        return bool(json.loads((location / MARKER).read_bytes())["placed"])
    except (FileNotFoundError, ValueError):
        return False


def kill_in_every_phase(attempts: Attempts) -> None:
    attempts.kill_once(attempts.history_is_read)
    assert not attempts.first.exists(), "it was killed before there was a marker"

    large = attempts.origins[0] / "large"
    with large.open("wb") as file:
        file.truncate(_LARGE_BYTES)
    copy = attempts.first / "large"
    attempts.kill_once(copy.exists)
    assert copy.stat().st_size < _LARGE_BYTES, "it was killed while it copied"
    assert (attempts.first / MARKER).exists()
    assert not placed(attempts.first)
    large.unlink()

    for _ in range(_MOST_TRIES):
        # of the try before
        (attempts.first / "commits" / attempts.repartitioned).unlink(missing_ok=True)
        attempts.kill_once(attempts.first_has_new_partitions)
        if not attempts.first_has_offsets_of_kafka():
            break
    assert not attempts.first_has_offsets_of_kafka(), "it was killed before they were written"
    assert not copy.exists(), "what was copied by half is gone"

    attempts.kill_once(lambda: placed(attempts.first))
    assert not placed(attempts.second)
    assert not attempts.reported()

    attempts.kill_once(attempts.reported)
    assert placed(attempts.second)


def kill_in_the_first_live_batch(
    attempts: Attempts, jars: Jars, broker: str, directory: Path
) -> None:
    """Kills the live driver once it has begun its first micro-batch, and once it has written it."""
    report = status(attempts.settings).hand_off
    assert report is not None
    (batch,) = {query.batch + 1 for query in report.queries}
    begun, done = (attempts.first / log / str(batch) for log in ("offsets", "commits"))
    written = attempts.first.parents[1] / _QUERIES[0] / f"{batch}.json"
    main_file = Path(attempts.settings.main_file)
    directory.mkdir()
    for phase in (begun, written):
        for _ in range(_MOST_TRIES):
            with production(jars, broker, directory) as live:
                live.kill_once(phase.exists, main_file, *attempts.settings.arguments[1:])
            if not done.exists():
                break
            for log in (begun.parent, done.parent):
                for file in log.iterdir():
                    if file.name.isdigit() and int(file.name) >= batch:
                        file.unlink()
            written.unlink(missing_ok=True)
        assert begun.exists()
        assert not done.exists()
        assert written.exists() == (phase is written)


class Growing:
    """A table that gets half of history's rows while the other half is read, and is compacted
    meanwhile. The driver that has read the first half is killed.
    """

    def __init__(self, history: History):
        self._history = history
        self._table = history.catalog.create_table("default.growing", schema=COLUMNS)
        self._append(0, HISTORY_ROWS // 2)
        source = history.spec.sources[0].to_manifest() | {"table": "lake.default.growing"}
        fields = {"sources": [source], "maxMisalignment": "10m"}
        spec = BackfillSpec.model_validate(history.spec.to_manifest() | fields)
        header = make_plan(spec, self._workspace, parallelism=1)
        self.history = replace(history, header=header, spec=spec)

    @property
    def _workspace(self) -> Workspace:
        return Workspace(str(self._history.directory / "workspace"))

    def read_and_extended(self) -> RuntimeSettings:
        """The attempt that goes on with the rest, after one that was killed before the last step.
        What it reads first is the step that was held back.
        """
        settings = self.history.settings("growing", TWO_QUERIES, _QUERIES, None)
        held = self.history.header.steps - 1
        assign(settings, self.history.header, held)
        with driver(settings) as process:
            wait_until(lambda: committed(settings) == held, process)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._append(HISTORY_ROWS // 2, HISTORY_ROWS * 3 // 4)
        compact(self._table)
        self._append(HISTORY_ROWS * 3 // 4, HISTORY_ROWS)
        extended = extend_plan(
            self.history.spec,
            self.history.header,
            self._workspace,
            Workspace(settings.checkpoints),
            owner="default/growing",
            on_progress=lambda _: None,
        )
        assert extended.rows == HISTORY_ROWS
        assert extended.steps > self.history.header.steps
        again = settings.model_copy(
            update={
                "attempt": 2,
                "plan": plan_directory(self._workspace, extended.inputs.own_id()).uri,
            }
        )
        assign(again, extended, extended.steps)
        return again

    def _append(self, first: int, end: int) -> None:
        rows = list(rows_of("events", first, end))
        self._table.append(pa.Table.from_pylist(rows, schema=COLUMNS))


def files(directory: Path) -> set[str]:
    """What there is below a directory, without what is unique to a run. Of state it is only which
    kinds of files: when Spark makes a snapshot of it is a matter of time.
    """
    found = set()
    for path in directory.rglob("*"):
        if path.is_file():
            name = _UNIQUE.sub("*", path.name)
            if "state" in path.parts:
                name = re.sub(r"\d+", "*", name)
            found.add(str(path.relative_to(directory).with_name(name)))
    return found


def same(report: HandOffReport | None) -> HandOffReport:
    """A report without what is unique to a run."""
    assert report is not None
    return report.model_copy(
        update={
            "seconds": 0.0,
            "queries": tuple(
                each.model_copy(update={"query_id": "", "checkpoint_location": ""})
                for each in report.queries
            ),
        }
    )


@pytest.mark.slow
def test_a_driver_killed_in_every_phase_hands_over_what_an_undisturbed_one_does(
    tmp_path: Path, lake: Catalog
) -> None:
    jars = find_jars()
    with kafka_broker(jars, tmp_path) as broker, production(jars, broker, tmp_path) as live:
        live.run(CREATE_TOPICS, "events", "4", "{}")
        live.produce(0, HISTORY_ROWS, {"events": "events"})
        history = History.of(tmp_path, lake, jars, broker)
        killed, undisturbed = (
            history.settings(name, TWO_QUERIES, _QUERIES, _STATE_PARTITIONS)
            for name in ("killed", "undisturbed")
        )
        attempts = Attempts(history, killed)

        kill_in_every_phase(attempts)
        growing = Growing(history)
        extended = growing.read_and_extended()
        outcomes = run_applications(tmp_path, [attempts.settings, undisturbed, extended])

        assert [each[0] for each in outcomes] == ["Finished"] * 3, outcomes
        assert same(status(extended).hand_off).sources == same(status(killed).hand_off).sources
        assert same(status(killed).hand_off) == same(status(undisturbed).hand_off)
        left, expected = (files(tmp_path / name / "live") for name in ("killed", "undisturbed"))
        assert left == expected
        live.produce(HISTORY_ROWS, HISTORY_ROWS + LIVE_ROWS, {"events": "events"})
        main_file = Path(killed.main_file)
        live.run_file(main_file, str(main_file.parent / "uninterrupted"))
        kill_in_the_first_live_batch(attempts, jars, broker, tmp_path / "doomed")
        live.run_file(main_file, *killed.arguments[1:])
        check_rows(history, killed)
        main_file = Path(extended.main_file)
        live.run_file(main_file, str(main_file.parent / "uninterrupted"))
        live.run_file(main_file, *extended.arguments[1:])
        check_rows(growing.history, extended)
