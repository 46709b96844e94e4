"""What people see when they make a mistake, and what the commands that run nothing show."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pyiceberg.catalog import Catalog

from backfill.api.errors import BadInput, Problem
from backfill.api.status import BackfillStatus
from backfill.cli.cluster.commands import ClusterCommands
from backfill.controller.jobs.any_job import Job
from backfill.controller.local.jobs import Worker
from backfill.kube.client import Cluster
from local_runs import EVENTS, STEPS, Command, LocalRuns


def test_a_file_that_is_not_there(backfill: Command) -> None:
    ended = backfill("run", "nowhere.yaml")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == "error: there is no file nowhere.yaml; check the path\n"


def test_a_server_that_is_away_for_a_moment_is_no_bad_input(
    backfill: Command, monkeypatch: pytest.MonkeyPatch, runs: LocalRuns
) -> None:
    """Or a script takes the manifest for wrong, and does not try again."""

    def away(*_: object, **__: object) -> None:
        raise BadInput(Problem("", "the catalog answers 503", may_pass=True, unavailable=True))

    monkeypatch.setattr("backfill.cli.local.target.load_manifests", away)
    ended = backfill("plan", str(runs.file))
    assert (ended.status, ended.err) == (1, "error: the catalog answers 503\n")


def test_text_that_is_not_yaml_is_told_with_its_line(backfill: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: Backfill\nspec: {\n")
    ended = backfill("run", "bad.yaml")
    assert ended.status == 2
    assert ended.err.startswith("error: bad.yaml:3:1: ")


def test_all_mistakes_are_told_together_and_nothing_is_kept(
    backfill: Command, runs: LocalRuns, tmp_path: Path
) -> None:
    runs.write(maxMisalignment="15 minutes", windoww={}, ordering={"policy": "Sorted"})
    ended = backfill("run", str(runs.file))
    assert ended.status == 2
    lines = ended.err.splitlines()
    assert all(line.startswith(f"error: {runs.file}:") for line in lines)
    assert {line.split(": ")[2] for line in lines} >= {
        "spec.maxMisalignment",
        "spec.windoww",
        "spec.ordering.policy",
    }
    assert not (tmp_path / ".backfill").exists()


def test_a_state_directory_that_can_not_be_made(backfill: Command, runs: LocalRuns) -> None:
    ended = backfill("run", str(runs.file), "--state-dir", "/dev/null/state")
    assert ended.status == 2
    fix = "choose a writable directory"
    assert (
        ended.err == f"error: --state-dir: /dev/null/state cannot be used: Not a directory; {fix}\n"
    )


@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_the_tables_do_not_allow_is_told_together(
    backfill: Command, runs: LocalRuns, command: str
) -> None:
    sources = [
        {"name": "clicks", "table": "lake.raw.click", "timestampColumn": "at"},
        {"name": "views", "table": "lake.raw.views", "timestampColumn": "time"},
    ]
    runs.write(sources=sources, outputs=[{"name": "counts", "table": "lake.raw.counts"}])
    ended = backfill(command, str(runs.file))
    assert ended.status == 2
    lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[2] for line in lines] == [
        "spec.sources[0].table",
        "spec.sources[1].timestampColumn",
        "spec.outputs[0].table",
    ]


def test_an_input_that_was_refused_can_be_corrected_in_place(
    backfill: Command, runs: LocalRuns
) -> None:
    runs.write(sources=[{"name": "clicks", "table": "lake.raw.click", "timestampColumn": "at"}])
    assert backfill("run", str(runs.file), "--state-dir", str(runs.state)).status == 2
    runs.write()
    assert runs.run().status == 0


def test_without_java_nothing_is_planned(
    backfill: Command, runs: LocalRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Job] = []
    monkeypatch.setattr(Worker, "start", lambda _self, job: started.append(job))
    nothing = Problem("", "Spark needs Java 17 or newer, but none was found", "install one")
    monkeypatch.setattr(
        "backfill.controller.local_driver.backend.find_java", lambda _environment: nothing
    )
    ended = backfill("run", str(runs.file))
    assert ended.status == 2
    assert ended.err == "error: Spark needs Java 17 or newer, but none was found; install one\n"
    assert started == []


@pytest.mark.parametrize("command", ["status", "suspend", "resume", "approve", "cancel"])
def test_a_name_that_is_not_known_is_told_with_those_that_are(
    backfill: Command, runs: LocalRuns, command: str
) -> None:
    _keep_suspended(runs)
    ended = backfill(command, "januray", "--state-dir", str(runs.state))
    assert ended.status == 2
    assert 'there is no backfill "januray"' in ended.err
    assert "january" in ended.err


def test_where_nothing_was_run_it_is_told_how_to_reach_a_cluster(backfill: Command) -> None:
    """The commands that the status of a Backfill shows begin with kubectl."""
    ended = backfill("approve", "january", "--namespace", "streaming")
    assert (ended.status, ended.err) == (
        2,
        'error: there is no backfill "january" in namespace streaming of .backfill; none was run'
        " with this --state-dir; for one on a cluster, run kubectl backfill, or add --context\n",
    )


def test_an_option_that_is_not_known_is_bad_input(backfill: Command) -> None:
    assert backfill("run", "--fast").status == 2


def test_a_backfill_that_begins_suspended_waits_for_a_person(
    backfill: Command, runs: LocalRuns
) -> None:
    runs.write(suspend=True)
    ended = backfill("run", str(runs.file), "--state-dir", str(runs.state))
    assert ended.status == 3
    assert (
        ended.out.splitlines()[-1]
        == "january: suspended after 0 of 12 steps; resume with: backfill resume january"
        f" --state-dir {runs.state}"
    )


def test_a_command_that_is_printed_works_when_it_is_pasted(
    backfill: Command, runs: LocalRuns
) -> None:
    """Or the shell cuts the path at its space, and no namespace but default is looked into."""
    runs.state = runs.directory / "state of july"
    runs.write(suspend=True)
    documents = list(yaml.safe_load_all(runs.file.read_text()))
    for document in documents:
        document["metadata"]["namespace"] = "streaming"
    runs.file.write_text(yaml.safe_dump_all(documents))
    kept = backfill("run", str(runs.file), "--state-dir", str(runs.state))
    assert kept.status == 3
    program, verb, *words = shlex.split(kept.out.splitlines()[-1].partition("resume with: ")[2])
    assert (program, verb, words[0]) == ("backfill", "resume", "january")
    found = backfill("status", *words)
    assert (found.status, "suspended" in found.out.lower()) == (0, True), found.err


def test_options_of_a_cluster_are_quoted_in_printed_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Cluster, "from_kubeconfig", lambda *_: SimpleNamespace(namespace="team"))
    kubeconfig = Path("/home/me/my clusters")
    commands = ClusterCommands(False, "kubectl backfill", "team", None, kubeconfig)
    printed = commands.place().command("retry", "january")
    assert shlex.split(printed)[3:] == [
        "january",
        *("-n", "team", "--kubeconfig", "/home/me/my clusters"),
    ]


def test_status_takes_a_name_or_the_file(backfill: Command, runs: LocalRuns) -> None:
    _keep_suspended(runs)
    by_name = backfill("status", "january", "--state-dir", str(runs.state))
    assert by_name.status == 0
    assert "resume with: backfill resume january" in by_name.out
    assert backfill("status", str(runs.file), "--state-dir", str(runs.state)).status == 0
    listed = backfill("status", "--state-dir", str(runs.state))
    assert "Suspended" in listed.out
    document = backfill(
        "status", "january", "--output", "json", "--state-dir", str(runs.state)
    ).document
    assert (document["name"], document["steps"], document["rowsRead"]) == ("january", 12, 0)


def test_namespaces_are_kept_apart(backfill: Command, runs: LocalRuns) -> None:
    state = ("--state-dir", str(runs.state))
    _keep_suspended(runs, "-n", "streaming")
    assert backfill("status", "january", *state).status == 2
    assert backfill("status", "january", "-n", "streaming", *state).status == 0
    assert "january" in backfill("list", "-n", "streaming", *state).out
    assert "january" not in backfill("list", "-n", "default", *state).out


def test_a_plan_is_shown_and_nothing_is_kept(
    backfill: Command, runs: LocalRuns, tmp_path: Path
) -> None:
    before = set(tmp_path.iterdir())
    shown = backfill("plan", str(runs.file))
    assert shown.status == 0
    assert f"{STEPS} steps of up to 30 min" in shown.out
    assert "clicks" in shown.out
    as_for_a_run = ("--state-dir", str(runs.state), "--output", "json")
    document = json.loads(backfill("plan", str(runs.file), *as_for_a_run).out)
    assert (document["rows"], document["steps"]["count"]) == (720, STEPS)
    assert set(tmp_path.iterdir()) == before


def test_a_cancelled_backfill_that_was_never_planned_is_gone(
    backfill: Command, runs: LocalRuns
) -> None:
    _keep_suspended(runs)
    assert backfill("cancel", "january", "--state-dir", str(runs.state)).status == 0
    assert not runs.store.directory.exists()


def test_suspend_and_cancel_print_json(backfill: Command, runs: LocalRuns) -> None:
    _keep_suspended(runs)
    options = ("--state-dir", str(runs.state), "--output", "json")
    suspended = backfill("suspend", "january", *options)
    assert (suspended.status, suspended.document["name"]) == (0, "january")
    assert "resume with: backfill resume january" in suspended.err
    cancelled = backfill("cancel", "january", *options)
    removed = {"name": "january", "namespace": "default", "removed": True}
    assert (cancelled.status, json.loads(cancelled.out)) == (0, removed), cancelled.err


def test_a_relative_workspace_is_beside_the_file(
    backfill: Command, runs: LocalRuns, tmp_path: Path
) -> None:
    runs.write(workspace="shared/work")
    assert runs.run().status == 0
    assert runs.backfill.status.workspace == str(
        tmp_path / "shared" / "work" / "default" / "january"
    )
    assert runs.command("cancel", "january").status == 0
    assert list((tmp_path / "shared" / "work").rglob("*.parquet")) == []


def test_a_relative_location_in_a_directory_with_spaces_is_refused_before_anything_is_kept(
    runs: LocalRuns, tmp_path: Path
) -> None:
    (tmp_path / "my files").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "my files")
    runs.write(workspace="link/work")
    ended = runs.run()
    assert ended.status == 2, ended.err
    said = " ".join(ended.err.split())
    assert f'spec.workspace: "link/work" resolves to {tmp_path}/my files/work' in said
    assert not runs.store.directory.exists()


def test_a_result_is_published_when_a_person_approves_it(runs: LocalRuns, lake: Catalog) -> None:
    lake.create_table("raw.counts", schema=EVENTS)
    output = {
        "name": "counts",
        "table": "lake.raw.counts",
        "publish": {"mode": "Append", "approval": "Manual"},
    }
    runs.write(outputs=[output])
    ended = runs.run("--output", "json")
    assert ended.status == 3, ended.err
    assert "publish with: backfill approve january" in ended.err
    assert ended.document["outputs"][0]["branch"] == "backfill/january"
    assert ended.document["outputs"][0]["snapshotId"] is None
    approved = runs.command("approve", "january", "--output", "json")
    assert approved.status == 0, approved.err
    assert approved.document["outputs"][0]["snapshotId"] is not None


def test_a_result_is_exported_to_files_beside_the_manifest_and_taken_back(
    runs: LocalRuns, lake: Catalog, tmp_path: Path
) -> None:
    lake.create_table("raw.counts", schema=EVENTS)
    publish = {"mode": "Export", "location": "out/counts", "approval": "Manual"}
    runs.write(outputs=[{"name": "counts", "table": "lake.raw.counts", "publish": publish}])
    place = tmp_path / "out" / "counts"
    ended = runs.run()
    assert ended.status == 3, ended.err
    assert not list(place.iterdir())
    approved = runs.command("approve", "january", "--output", "json")
    assert approved.status == 0, approved.err
    (output,) = approved.document["outputs"]
    assert (output["exported"]["location"], output["snapshotId"]) == (str(place), None)
    assert {"_manifest.json", "_SUCCESS"} <= {path.name for path in place.iterdir()}
    shown = runs.command("status", "january").out
    assert f"published as {output['exported']['files']} file" in " ".join(shown.split())
    undone = runs.command("undo", "january", "--reason", "wrong rates")
    assert undone.status == 0, undone.err
    assert not list(place.iterdir())


def _keep_suspended(runs: LocalRuns, *options: str) -> None:
    """Plans a Backfill, which then waits."""
    runs.write(suspend=True)
    assert runs.run(*options).status == 3


def test_a_status_that_was_never_written_is_shown_as_it_is(
    backfill: Command, runs: LocalRuns
) -> None:
    _keep_suspended(runs)
    runs.store.write_status(BackfillStatus())
    assert backfill("status", "january", "--state-dir", str(runs.state)).status == 0
    assert "New" in backfill("status", "--state-dir", str(runs.state)).out
