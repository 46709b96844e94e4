"""Measures everything in docs/choosing-numbers.md, side by side, and prints it as a table: ``make
bench``.

Data and results are kept in ``.bench/``. Every comparison runs its two sides in turn, so that a
machine that gets slower slows both; the ratio is of the medians.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import yaml
from event_data import catalog_properties, generate
from programs import PROGRAMS
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

HERE = Path(__file__).parent
BENCH = HERE.parents[1] / ".bench"
COUNTS = pa.schema(
    [("start", pa.timestamp("us", "UTC")), ("part", pa.int64()), ("count", pa.int64())]
)

Figures = dict[str, float]
LONG_DAYS = 8
MANY_PARTITIONS = ("--partitions", "200")
"""Spark's default, which the hand-written job needs for many days: with two it takes longer."""


def script(name: str, *arguments: str) -> Figures:
    """Runs one of the scripts beside this one and returns the JSON of its last line, and the most
    memory in GB that it and its processes had at once.
    """
    command = [sys.executable, str(HERE / name), *arguments]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ThreadPoolExecutor(1) as threads:
        memory = threads.submit(most_memory, running)
        printed, errors = running.communicate()
    if running.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{errors[-3000:]}")
    figures = json.loads(printed.splitlines()[-1])
    figures.pop("timings", None)
    return {**figures, "memory_gb": memory.result()}


def most_memory(running: subprocess.Popen[str]) -> float:
    """The most memory in GB that a process and those in its session had at once, until it ends.
    What several of them share counts once.
    """
    most = 0
    while running.poll() is None:
        kilobytes = 0
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                session = entry.read_text().rpartition(") ")[2].split()[3]
                if int(session) == running.pid:
                    kilobytes += share(entry.with_name("smaps_rollup"))
        most = max(most, kilobytes)
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.2)
    return most * 1_024 / 1e9


def share(rollup: Path) -> int:
    """The memory in KiB of a process, in which what it shares with others counts in part."""
    lines = rollup.read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def in_turn(repeats: int, *sides: tuple[str, ...]) -> list[Figures]:
    """The median figures of each side, all sides run after each other ``repeats`` times."""
    runs: list[list[Figures]] = [[] for _ in sides]
    for _ in range(repeats):
        for side, done in zip(sides, runs, strict=True):
            done.append(script(*side))
    return [
        {key: statistics.median(figures[key] for figures in done) for key in done[0]}
        for done in runs
    ]


def compared(name: str, ours: Figures, other: Figures) -> Figures:
    """The figures of a backfill, those of what is named, and the ratio of their seconds."""
    return {
        "ratio": ours["seconds"] / other["seconds"],
        **{key: ours[key] for key in ("seconds", "memory_gb")},
        **{f"{name}_{key}": other[key] for key in ("seconds", "memory_gb")},
    }


def against_reference(data: Path, job: str, repeats: int) -> Figures:
    """A replay in 24 steps against the reference job."""
    sides = in_turn(repeats, ("replay.py", str(data), job), ("spark_reference.py", str(data), job))
    return compared("reference", *sides)


def as_streams(data: Path, job: str, repeats: int) -> Figures:
    """A replay in 24 steps against the same query over Spark's own file stream, in 24 batches."""
    sides = in_turn(
        repeats,
        ("replay.py", str(data), job),
        ("spark_reference.py", str(data), f"streaming-{job}"),
    )
    return compared("plain", *sides)


def as_batch_jobs(
    data: Path, program: str, repeats: int, by_hand: Sequence[str] = (), heap: str = "6g"
) -> Figures:
    """A query run by spans into a branch, against a hand-written batch job that writes Parquet."""
    script = ("spans.py", str(data), program)
    sides = in_turn(
        repeats,
        (*script, "backfill", "--heap", heap),
        (*script, "by-hand", "--heap", heap, *by_hand),
    )
    return compared("by_hand", *sides)


def of_a_result(repeats: int) -> Figures:
    """Ten million rows of a result compared with as many of production by their key, against a
    hand-written full outer join of the same files.
    """
    data = BENCH / "comparison"
    use_catalog(data)
    try:
        script("comparison.py", str(data), "generate")
        sides = ("backfill", "by-hand")
        return compared(
            "by_hand", *in_turn(repeats, *(("comparison.py", str(data), side) for side in sides))
        )
    finally:
        use_catalog(BENCH / "data")


def from_kafka(data: Path, repeats: int) -> Figures:
    """The join as a program that parses JSON from Kafka, against one with named sources."""
    sides = in_turn(
        repeats, *(("spans.py", str(data), "join", side) for side in ("kafka", "backfill"))
    )
    return compared("named", *sides)


def of_long_history(measure: Callable[[Path], Figures]) -> Figures:
    """What is measured of many days. Their data is made for it, in about half an hour."""
    data = BENCH / f"data-{LONG_DAYS}-days"
    generate(data, LONG_DAYS)
    use_catalog(data)
    try:
        return measure(data)
    finally:
        use_catalog(BENCH / "data")


def use_catalog(data: Path) -> None:
    """Makes the generated tables below a directory the catalog of what is started from now on."""
    for key, value in catalog_properties(data).items():
        os.environ[f"PYICEBERG_CATALOG__BENCH__{key.upper()}"] = value


def cost_of_a_step(data: Path, job: str, repeats: int) -> Figures:
    """The same rows in 192 steps and in 24: what a step costs by itself."""
    many, few = (
        figures["seconds"]
        for figures in in_turn(
            repeats, *(("replay.py", str(data), job, "--steps", steps) for steps in ("192", "24"))
        )
    )
    return {
        "seconds_192_steps": many,
        "seconds_24_steps": few,
        "seconds_per_step": (many - few) / (192 - 24),
    }


def whole_run(data: Path, catalog: Catalog, policy: str, number: int) -> Figures:
    """``backfill run`` of the application beside this file, from the command to the last published
    row.
    """
    name = f"{policy.lower()}-{number}"
    for source in ("impressions", "playbacks"):
        with suppress(NoSuchTableError):
            catalog.drop_table(f"events.{source}_counts")
        catalog.create_table(f"events.{source}_counts", schema=COUNTS)
    manifest = BENCH / f"{name}.yaml"
    manifest.write_text(
        yaml.safe_dump_all([application_manifest(), backfill_manifest(name, policy)])
    )
    state = ["--state-dir", str(BENCH / "state")]
    subprocess.run(
        [sys.executable, "-m", "backfill", "cancel", name, *state], capture_output=True, check=False
    )
    command = [sys.executable, "-m", "backfill", "run", str(manifest), *state, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    return {
        "seconds": result["durationSeconds"],
        "steps": result["steps"],
        "rows": result["rowsRead"],
    }


def application_manifest() -> dict[str, object]:
    """The SparkApplication that is run again."""
    spec = {
        "type": "Python",
        "mode": "cluster",
        "mainApplicationFile": str(HERE / "application.py"),
    }
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "counts"},
        "spec": spec,
    }


def backfill_manifest(name: str, policy: str) -> dict[str, object]:
    """The whole day of both sources in steps of half an hour and a little more."""
    window = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-02T00:00:00Z"}
    sources = [
        {"name": source, "table": f"bench.events.{source}", "timestampColumn": "ingestion_ts"}
        for source in ("impressions", "playbacks")
    ]
    outputs = [
        {
            "name": f"{source}_counts",
            "table": f"bench.events.{source}_counts",
            "timestampColumn": "start",
            "publish": {"mode": "Append"},
        }
        for source in ("impressions", "playbacks")
    ]
    spec = {
        "applicationRef": {"name": "counts"},
        "window": window,
        "sources": sources,
        # no file is cut: the same steps under both policies
        "ordering": {"policy": policy, "allowedLateness": "30m"},
        "maxMisalignment": "1h",
        "outputs": outputs,
        "execution": "Streaming",
        "overrides": {"driver": {"memory": "6g"}, "sparkConf": {"spark.master": "local[2,4]"}},
    }
    return {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "Backfill",
        "metadata": {"name": name},
        "spec": spec,
    }


def cost_of_alignment(data: Path, catalog: Catalog, repeats: int) -> Figures:
    """Whole runs with sources held together, and with everything released at once."""
    aligned, unordered = [], []
    for number in range(repeats):
        aligned.append(whole_run(data, catalog, "WithinLateness", number))
        unordered.append(whole_run(data, catalog, "Unordered", number))
    ours, other = (
        statistics.median(run["seconds"] for run in runs) for runs in (aligned, unordered)
    )
    steps = {run["steps"] for run in aligned + unordered}
    return {
        "seconds": ours,
        "unordered_seconds": other,
        "ratio": ours / other,
        "steps": max(steps),
        "same_steps": len(steps) == 1,
    }


def planning(files: int) -> Figures:
    """Planning over generated manifests."""
    return script("planning.py", "--files", str(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=3, help="how often each side of a comparison runs"
    )
    parser.add_argument("--only", help="only the measurement with this name")
    parser.add_argument(
        "--long", action="store_true", help=f"also {LONG_DAYS} days, whose data takes 5 GB"
    )
    arguments = parser.parse_args()
    data, repeats = BENCH / "data", arguments.repeats
    generate(data)
    use_catalog(data)
    catalog = load_catalog("bench", **catalog_properties(data))
    measurements = {
        "pass-through": lambda: against_reference(data, "pass-through", repeats),
        "sessions": lambda: against_reference(data, "sessions", repeats),
        **{
            f"batch-{program}": partial(as_batch_jobs, data, program, repeats)
            for program in PROGRAMS
        },
        "streaming-sessions": lambda: as_streams(data, "sessions", repeats),
        "streaming-join": lambda: as_streams(data, "join", repeats),
        "batch-kafka": lambda: from_kafka(data, repeats),
        "step-stateless": lambda: cost_of_a_step(data, "pass-through", repeats),
        "step-windowed": lambda: cost_of_a_step(data, "counts", repeats),
        "alignment": lambda: cost_of_alignment(data, catalog, repeats),
        "comparison": lambda: of_a_result(repeats),
        "planning-100000": lambda: planning(100_000),
        "planning-1000000": lambda: planning(1_000_000),
        "planning-strays": lambda: script("planning.py", "--files", "120", "--strays"),
        "columns-30": lambda: script("wide_table.py", "--columns", "30"),
        "columns-1500": lambda: script("wide_table.py", "--columns", "1500"),
        "publishing-10000": lambda: script("publishing.py", "--files", "10000"),
        "delivery": lambda: script("delivery.py"),
        "hand-off": lambda: script("hand_off.py"),
        "hand-off-repartitioned": lambda: script("hand_off.py", "--partitions", "3"),
    }
    if arguments.long:
        measurements["batch-join-long"] = lambda: of_long_history(
            lambda days: as_batch_jobs(days, "join", repeats, MANY_PARTITIONS)
        )
        measurements["batch-join-long-1g"] = lambda: of_long_history(
            lambda days: as_batch_jobs(days, "join", repeats, MANY_PARTITIONS, heap="1g")
        )
        measurements["executors"] = lambda: of_long_history(
            lambda days: script("executors.py", str(days), "join")
        )
    if os.environ.get("KUBEBUILDER_ASSETS"):
        measurements["operator-1000"] = lambda: script("operator_load.py")
    results: dict[str, Figures] = {}
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        flush=True,
    )
    for name, measure in measurements.items():
        if arguments.only in (None, name):
            results[name] = measure()
            print(
                f"{name:18}",
                ", ".join(f"{key} {value:,.2f}" for key, value in results[name].items()),
                flush=True,
            )
    (BENCH / "results.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
