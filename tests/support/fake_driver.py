"""Plays a driver through the channel, without Spark: reads steps as they are released, and fails as
the test wants it.

What it "commits" goes to a file under the checkpoints, so that a later attempt goes on from there,
and every step it reads is written to a log next to it: that is what tests look at. Two drivers at
once, or a step that was not released, are written there too.

``FAKE_DRIVER`` in the environment is a JSON object:
``step_seconds`` how long a step takes; ``crash_at`` and ``hang_at``: before that step, the first
time it is reached; ``crash_always_at``: every time; ``unsupported``: the program cannot be
redirected; ``start_seconds``: how long it takes before anything is reported; ``grace_seconds``: how
long it goes on without a controller; ``matching`` and ``missing``: how results compare with
production; ``crash_comparing``: before it says so, the first time; ``keeps_state``: it hands no
state over; ``offsets``: by Kafka partition, where every source goes on.
"""

import fcntl
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from backfill.api.validation import settings_digest
from backfill.planning.plan import read_header
from backfill.planning.recorded_offsets import offsets_file, write_offsets
from backfill.planning.workspace import Workspace
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.driver_settings import SETTINGS_VARIABLE, DriverSettings
from backfill.protocol.hand_off_messages import HandOffQuery, HandOffReport
from backfill.protocol.split_assignment import (
    ASSIGNMENT_FILE,
    LOCK_FILE,
    STATUS_FILE,
    OutputComparison,
    QueryProgress,
    SourceProgress,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
)


class FakeDriver:
    def __init__(self, settings: DriverSettings, wishes: dict[str, float]):
        self.settings = settings
        self.wishes = wishes
        self.header = read_header(Workspace(settings.plan))
        self.channel = Path(settings.channel)
        self.checkpoints = Path(settings.checkpoints)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.committed_file = self.checkpoints / "committed"
        self.controller_seen = time.monotonic()

    def log(self, event: str, **details: object) -> None:
        with (self.checkpoints / "events.jsonl").open("a") as log:
            log.write(
                json.dumps({"event": event, "attempt": self.settings.attempt, **details}) + "\n"
            )

    @property
    def committed(self) -> int:
        return int(self.committed_file.read_text()) if self.committed_file.exists() else 0

    def assignment(self) -> SplitAssignmentSpec:
        spec = SplitAssignmentSpec.model_validate_json(
            (self.channel / ASSIGNMENT_FILE).read_bytes()
        )
        if spec.attempt > self.settings.attempt:
            self.log("fenced")
            sys.exit(1)
        return spec

    def report(self, phase: str, **fields: object) -> None:
        starting = phase == "Starting"
        rows = {total.name: sum(total.step_rows[: self.committed]) for total in self.header.sources}
        sources = tuple(
            SourceProgress(name=name, committed=self.committed, rows=count)
            for name, count in rows.items()
        )
        output = next((output.name for output in self.settings.outputs), None)
        open_at_end = int(self.wishes.get("open_at_end", 0))
        query = QueryProgress(name="query", output=output, sources=sources, open_at_end=open_at_end)
        status = SplitAssignmentStatus.model_validate(
            {
                "attempt": self.settings.attempt,
                "phase": phase,
                "queries": () if starting else (query,),
                "executors": 1,
                "heartbeat": datetime.now(UTC),
                "max_observed_misalignment_seconds": 0.5,
                "hand_off": None if starting else self.goes_on(),
                **fields,
            }
        )
        replace_file(
            self.channel / STATUS_FILE,
            status.model_dump_json(by_alias=True).encode(),
            durable=False,
        )

    def first_time(self, wish: str) -> bool:
        """Whether a wish is for this step and was not granted before."""
        if self.wishes.get(wish) != self.committed:
            return False
        mark = self.checkpoints / wish
        new = not mark.exists()
        mark.touch()
        return new

    def controller_is_there(self) -> bool:
        with (self.channel / LOCK_FILE).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                self.controller_seen = time.monotonic()
        return time.monotonic() - self.controller_seen < self.wishes.get("grace_seconds", 30.0)

    def read_step(self) -> None:
        step = self.committed
        if self.wishes.get("crash_always_at") == step or self.first_time("crash_at"):
            print("the fake driver crashes", flush=True)
            os._exit(17)
        if self.first_time("hang_at"):
            self.log("hangs")
            time.sleep(3600)
        time.sleep(self.wishes.get("step_seconds", 0.01))
        self.log("step", step=step)
        replace_file(self.committed_file, str(step + 1).encode())

    def run(self) -> int:
        with (self.checkpoints / "driver.lock").open("a") as alone:
            try:
                fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.log("two drivers")
            self.log("started", committed=self.committed)
            time.sleep(self.wishes.get("start_seconds", 0.0))
            if self.wishes.get("unsupported"):
                self.report(
                    "Failed",
                    reason="UnsupportedProgram",
                    message=f"{self.wishes.get('about', '')}foreachBatch cannot be redirected",
                )
                return 2
            return self.run_steps()

    def run_steps(self) -> int:
        self.report("Starting")
        for total in self.header.sources if "offsets" in self.wishes else ():
            name = offsets_file(self.header.inputs.own_id(), total.name)
            write_offsets(Workspace(str(self.checkpoints)), name, self.wishes["offsets"])
        self.report("Running")
        beat = time.monotonic()
        while self.committed <= self.header.steps:
            spec = self.assignment()
            if spec.stop or not self.controller_is_there():
                self.report("Stopped")
                self.log("stopped")
                return 0
            flush = self.committed == self.header.steps and spec.released >= self.header.steps
            if spec.released > self.committed or flush:
                self.read_step()
                self.report("Running")
            elif time.monotonic() - beat > 0.2:
                self.report("Running")
                beat = time.monotonic()
            else:
                time.sleep(0.005)
        self.stage()
        if self.wishes.get("crash_comparing") and not (self.checkpoints / "crashed").exists():
            (self.checkpoints / "crashed").touch()
            os._exit(17)
        self.report("Finished", comparisons=self.comparisons(), hand_off=self.handed_over())
        self.log("finished")
        return 0

    def comparisons(self) -> tuple[OutputComparison, ...]:
        """What the test wants found, of every output that is to be compared."""
        return tuple(
            OutputComparison(
                output=output.name,
                settings=settings_digest(output),
                matching=int(self.wishes.get("matching", 0)),
                causes=("one cause", "another [b]"),
                missing=int(self.wishes.get("missing", 0)),
                reference=output.reference_table,
                report=f"/reports/{output.name}.html",
            )
            for output in self.settings.outputs
            if output.validate_ is not None
        )

    def goes_on(self) -> HandOffReport | None:
        """Until when Kafka keeps what comes after history, and what the query reads twice."""
        until, starting = (self.wishes.get(each) for each in ("kept_until", "starting_timestamp"))
        if until is None and starting is None:
            return None
        source = {"source": "clicks", "topic": "clicks", "partitions": 1, "offsets": {"0": 7}}
        times = {"kept_until": until, "starting_timestamp": starting}
        repeated = ["query"] if starting else []
        return HandOffReport.model_validate(
            {"sources": [{**source, **times}], "repeated_in": repeated}
        )

    def handed_over(self) -> HandOffReport | None:
        """What a driver says that has put the state of its query where the program looks."""
        if self.settings.hand_off is None or self.wishes.get("keeps_state"):
            return None
        query = HandOffQuery(query="query", checkpoint_location="/live/query", batch=12)
        return HandOffReport(queries=(query,), written=True, seconds=0.5)

    def stage(self) -> None:
        """A result of one row for every output: nulls, at the start of the window."""
        settings = self.settings
        if not settings.outputs:
            return
        # They bring PyArrow and PyIceberg: most of a process's CPU time, and most have no output.
        import pyarrow as pa

        from backfill.iceberg.open_tables import Catalogs
        from backfill.outputs.data_files import DataFileWriter, layout
        from backfill.outputs.result_names import Result
        from backfill.outputs.staging import StagedBatch, stage_batch

        for output in settings.outputs:
            table = Catalogs().load_table(output.table, "spec.outputs")
            result = Result(
                settings.namespace, settings.backfill, settings.uid, settings.plan_id, output.name
            )
            spec_id, directory = table.spec().spec_id, result.staging_directory(table.metadata)
            places = layout(table.metadata, table.schema().schema_id, spec_id, directory)
            time = {output.timestamp_column: settings.window.start}
            files = DataFileWriter(places, table.io)
            files.add(pa.RecordBatch.from_pylist([time], table.schema().as_arrow()))
            batch = StagedBatch("query", 0, files.close(), spec_id, rows_outside_window=0)
            stage_batch(table, result, batch)


if __name__ == "__main__":
    settings = DriverSettings.model_validate_json(os.environ[SETTINGS_VARIABLE])
    sys.exit(FakeDriver(settings, json.loads(os.environ.get("FAKE_DRIVER", "{}"))).run())
