"""A result in files of its own: all or nothing, the same however often it is killed, and taken back
only as it was written.
"""

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from backfill.api.errors import BackfillError, CanNotPublish, CanNotUndo, ResultLost
from backfill.api.job_report import JOB_VARIABLE
from backfill.api.output import Output, Publish, PublishMode
from backfill.api.source import Source
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.staged_outputs import StagedOutput
from backfill.outputs import export_places
from backfill.outputs.cleanup import discard
from backfill.outputs.export import (
    ExportDirectory,
    ExportUndo,
    check_exportable,
    discard_unfinished,
    export,
    is_exported,
)
from backfill.outputs.output_tables import check_outputs
from backfill.outputs.result_names import Result
from backfill.outputs.stored_files import OwnDirectory
from cases import cases
from staged import (
    COLUMNS,
    DAY_US,
    HOUR_US,
    RESULT,
    TABLE,
    WINDOW,
    make_table,
    output,
    rows_of,
    stage,
    stage_as,
    stage_rows,
)
from table_jobs import clicks_spec

FIRST, SECOND = [(1, 0), (2, HOUR_US)], [(3, DAY_US - 1)]
OTHER = Result("streaming", "other", "second", "fedcba9876543210", "summary")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "out" / "plays"


def exported_to(place: Path | str, **changes: object) -> Output:
    return output(publish=Publish(mode=PublishMode.EXPORT, location=str(place)), **changes)


def staged(lake: Catalog, partition: str | None = None) -> Table:
    table = make_table(lake, partition)
    stage(table, 0, FIRST)
    stage(table, 1, SECOND)
    return table


def found(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool) -> None:
    """Ends the process, as it were, before or after a change of the directory."""
    numbers = itertools.count(1)

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def changed(*arguments: object) -> object:
            mine = next(numbers) == number
            if mine and not after:
                raise KeyboardInterrupt
            answer = change(*arguments)
            if mine:
                raise KeyboardInterrupt
            return answer

        return changed

    for name in ("write", "remove"):
        monkeypatch.setattr(OwnDirectory, name, counted(getattr(OwnDirectory, name)))


@pytest.mark.parametrize("partition", [None, "day"])
def test_readers_of_files_find_the_rows_of_the_result_and_a_manifest_of_them(
    lake: Catalog, place: Path, partition: str | None
) -> None:
    table = staged(lake, partition)
    main = table.metadata.current_snapshot_id
    told = export(
        exported_to(place), RESULT, table.refresh().metadata.refs[RESULT.branch].snapshot_id
    )
    rows = ds.dataset(place, format="parquet").to_table().select(COLUMNS.column_names)
    assert sorted(rows["id"].to_pylist()) == [1, 2, 3]
    assert rows["ts"].type.tz == "UTC"
    manifest = json.loads((place / "_manifest.json").read_text())
    assert [file["name"] for file in manifest["files"]] == sorted(
        name for name in found(place) if name.endswith(".parquet")
    )
    assert (manifest["rows"], manifest["planId"]) == (3, RESULT.plan_id)
    assert (told.location, told.files, told.rows) == (str(place), 2, 3)
    assert told.bytes == sum(len(found(place)[file["name"]]) for file in manifest["files"])
    assert found(place)["_SUCCESS"] == b""
    assert table.refresh().metadata.current_snapshot_id == main, "the table stays as it is"


def test_a_result_without_rows_is_exported_as_such(lake: Catalog, place: Path) -> None:
    stage(make_table(lake), 0, [])
    told = export(exported_to(f"file://{place}/"), RESULT, None)
    assert (told.location, told.files, told.rows) == (f"file://{place}", 0, 0)
    assert set(found(place)) == {"_manifest.json", "_SUCCESS"}


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_write_shows_nothing_and_is_repeated_to_the_same_files(
    lake: Catalog, place: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    staged(lake)
    asked = exported_to(place)
    told = export(asked, RESULT, None)
    expected = found(place)
    for number in range(1, len(expected) + 1):
        for name in expected:
            (place / name).unlink()
        with monkeypatch.context() as patched:
            killed_at(patched, number, after=after)
            with pytest.raises(KeyboardInterrupt):
                export(asked, RESULT, None)
        complete = [name for name in expected if (place / name).exists()]
        if "_manifest.json" in complete:
            assert set(expected) - set(complete) <= {"_SUCCESS"}
        for name in expected:
            (place / f".{name}.{'0' * 32}.tmp").write_bytes(b"half")
        assert export(asked, RESULT, None) == told
        assert found(place) == expected


@cases(
    "name",
    {
        "a file": "part-00000-0123456789abcdef.parquet",
        "a directory": "day=2021-07-11/part-0.parquet",
        "the end of a batch job": "_SUCCESS",
        "the log of a stream": "_spark_metadata/0",
        "another manifest": "_manifest.json",
    },
)
def test_a_directory_with_something_of_others_is_refused_and_left_as_it_is(
    lake: Catalog, place: Path, name: str
) -> None:
    staged(lake)
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("{}")
    for refused in (check_exportable, export):
        with pytest.raises(
            CanNotPublish, match=f"contains 1 file that this Backfill has not written .{name}"
        ):
            refused(exported_to(place), RESULT, None)
    (problem,) = check_outputs([exported_to(place)], [OTHER], WINDOW)
    assert str(problem) == (
        f"spec.outputs[0].publish.location: {place} contains 1 file that this Backfill has not written"
        f" ({name}), but an export needs a directory of its own; move them elsewhere, or choose an"
        " empty directory, or one that does not exist"
    )
    assert found(place) == {name: b"{}"}


def test_what_another_backfill_has_exported_is_not_touched(lake: Catalog, place: Path) -> None:
    table = staged(lake)
    stage(table, 0, [(7, 0)], result=OTHER)
    export(exported_to(place), RESULT, None)
    before = found(place)
    with pytest.raises(CanNotPublish, match="contains 4 files that this Backfill has not written"):
        export(exported_to(place), OTHER, None)
    ExportUndo(exported_to(place), OTHER).run()
    discard_unfinished(exported_to(place), OTHER)
    assert not is_exported(exported_to(place), OTHER)
    assert found(place) == before


def test_somebody_who_writes_there_meanwhile_is_noticed_before_anything_is_published(
    lake: Catalog, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged(lake)
    write = OwnDirectory.write

    def write_beside(self: OwnDirectory, *arguments: object) -> None:
        write(self, *arguments)  # type: ignore[arg-type]
        (place / "theirs.parquet").write_bytes(b"")

    monkeypatch.setattr(OwnDirectory, "write", write_beside)
    with pytest.raises(CanNotPublish, match=r"theirs\.parquet"):
        export(exported_to(place), RESULT, None)
    assert not is_exported(exported_to(place), RESULT)
    discard_unfinished(exported_to(place), RESULT)
    assert list(found(place)) == ["theirs.parquet"]


def test_only_final_rows_are_exported(lake: Catalog, place: Path) -> None:
    table = make_table(lake)
    stage_as(table, "Changes", 0, FIRST)
    with pytest.raises(CanNotPublish, match="still contains older rows with keys"):
        export(exported_to(place), RESULT, None)
    with pytest.raises(ResultLost):
        export(exported_to(place), OTHER, None)
    assert not place.exists()


@cases("harm", {"missing": Path.unlink, "damaged": lambda path: path.write_bytes(b"PAR1")})
def test_a_file_of_the_result_that_cannot_be_read_is_named(
    lake: Catalog, place: Path, harm: Callable[[Path], object]
) -> None:
    table = staged(lake)
    head = table.refresh().metadata.refs[RESULT.branch].snapshot_id
    path = table.inspect.files(head)["file_path"][0].as_py()
    harm(Path(path.removeprefix("file://")))
    for refused in (check_exportable, export):
        with pytest.raises(CanNotPublish, match=r"is missing or damaged: .*; restore it and retry"):
            refused(exported_to(place), RESULT, None)
    assert not place.exists()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_directory_at_the_root_of_a_disk_is_not_one_beside_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    name = f"none-{tmp_path.name}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "theirs").write_text("")
    monkeypatch.chdir(tmp_path)
    assert ExportDirectory(exported_to(f"{scheme}/{name}"), RESULT).names() == set()


def test_files_with_different_columns_are_not_exported_together(lake: Catalog, place: Path) -> None:
    table = staged(lake)
    with table.update_schema() as update:
        update.rename_column("who", "by")
    later = rows_of([(9, 0)], "backfill").rename_columns(["id", "ts", "by"])
    stage_rows(table.refresh(), 2, later)
    with pytest.raises(CanNotPublish, match=r"columns of lake\.raw\.out were changed between two"):
        export(exported_to(place), RESULT, None)
    assert not place.exists()


def test_an_export_is_undone_with_everything_that_it_wrote_and_nothing_else(
    lake: Catalog, place: Path
) -> None:
    table = staged(lake)
    export(exported_to(place), RESULT, None)
    discard(TABLE, [RESULT], [None])
    assert table.refresh().metadata.refs == {}
    assert is_exported(exported_to(place), RESULT), "it does not need the branch"
    (place / "report.txt").write_text("theirs")
    for _ in range(2):
        undo = ExportUndo(exported_to(place), RESULT)
        undo.check()
        undo.run()
        assert found(place) == {"report.txt": b"theirs"}


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_removal_is_repeated_to_the_same_end(
    lake: Catalog, place: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    staged(lake)
    asked = exported_to(place)
    for number in range(1, 5):
        export(asked, RESULT, None)
        expected = found(place)
        with monkeypatch.context() as patched:
            killed_at(patched, number, after=after)
            with pytest.raises(KeyboardInterrupt):
                ExportUndo(asked, RESULT).run()
        if is_exported(asked, RESULT):
            assert expected.keys() - found(place).keys() <= {"_SUCCESS"}
        ExportUndo(asked, RESULT).run()
        assert found(place) == {}


def test_what_is_left_without_its_manifest_is_not_taken_for_undone(
    lake: Catalog, place: Path
) -> None:
    staged(lake)
    export(exported_to(place), RESULT, None)
    (place / "_manifest.json").unlink()
    before = found(place)
    for refused in (ExportUndo.check, ExportUndo.run):
        with pytest.raises(CanNotUndo, match=r": _manifest\.json; remove"):
            refused(ExportUndo(exported_to(place), RESULT))
    assert found(place) == before, "readers that wait for _SUCCESS still find all files"


def test_a_published_export_outlives_its_backfill_whatever_became_of_its_manifest(
    lake: Catalog, place: Path
) -> None:
    staged(lake)
    told = export(exported_to(place), RESULT, None)
    (place / "_manifest.json").unlink()
    before = found(place)
    asked = StagedOutput(
        RESULT.namespace,
        RESULT.backfill,
        RESULT.uid,
        RESULT.plan_id,
        exported_to(place),
        base_snapshot_id=None,
    )
    job = DiscardJob(RESULT.namespace, RESULT.backfill, clicks_spec(), (asked,), None)
    replace(job, exported=("summary",)).run(lambda progress: None)
    assert found(place) == before
    assert told.files == 2
    job.run(lambda progress: None)
    assert set(found(place)) == {"_SUCCESS"}


def test_an_export_that_was_killed_before_its_end_has_one_when_its_backfill_is_deleted(
    lake: Catalog, place: Path
) -> None:
    """Unless it was its undo that was killed: that has begun with the end."""
    staged(lake)
    export(exported_to(place), RESULT, None)
    before = found(place)
    (place / "_SUCCESS").unlink()
    discard_unfinished(exported_to(place), RESULT, undoing=True)
    assert found(place).keys() == before.keys() - {"_SUCCESS"}
    discard_unfinished(exported_to(place), RESULT)
    assert found(place) == before


@cases("change", {"changed": Path.touch, "removed": Path.unlink})
def test_files_that_somebody_has_changed_are_not_removed(
    lake: Catalog, place: Path, change: Callable[[Path], None]
) -> None:
    staged(lake)
    export(exported_to(place), RESULT, None)
    file = min(place.glob("*.parquet"))
    if change is Path.unlink:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    before = found(place)
    for refused in (ExportUndo.check, ExportUndo.run):
        with pytest.raises(CanNotUndo, match=f"were changed or removed .*: {file.name}; remove"):
            refused(ExportUndo(exported_to(place), RESULT))
    assert found(place) == before


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["../theirs", "_SUCCESS", "/etc/passwd"])
def test_a_forged_manifest_names_no_file_of_others(lake: Catalog, place: Path, name: str) -> None:
    staged(lake)
    export(exported_to(place), RESULT, None)
    (place.parent / "theirs").write_text("")
    manifest = json.loads((place / "_manifest.json").read_text())
    manifest["files"][0] |= {"name": name, "sha256": hashlib.sha256().hexdigest()}
    (place / "_manifest.json").write_text(json.dumps(manifest))
    assert not is_exported(exported_to(place), RESULT)
    with pytest.raises(CanNotPublish, match=r"_SUCCESS, _manifest\.json"):
        export(exported_to(place), RESULT, None)
    before = found(place.parent)
    with pytest.raises(CanNotUndo, match=r"changed or removed .*: _manifest\.json; remove"):
        ExportUndo(exported_to(place), RESULT).run()
    assert found(place.parent) == before


def test_a_link_in_place_of_the_directory_is_not_followed(
    lake: Catalog, tmp_path: Path, place: Path
) -> None:
    staged(lake)
    (tmp_path / "theirs").mkdir()
    place.parent.mkdir()
    place.symlink_to(tmp_path / "theirs")
    with pytest.raises(BackfillError, match="where other files may be"):
        export(exported_to(place), RESULT, None)
    assert not list((tmp_path / "theirs").iterdir())


def problems(place: Path | str, *sources: Source, workspace: str = "") -> list[str]:
    asked = [exported_to(place)]
    return [str(each) for each in check_outputs(asked, [OTHER], WINDOW, sources, workspace)]


def test_a_directory_of_its_own_is_found_good_and_left_empty(lake: Catalog, place: Path) -> None:
    make_table(lake)
    assert problems(place, workspace=f"{place}-work") == []
    assert found(place) == {}


def test_a_directory_within_or_around_one_of_the_backfill_is_refused(
    lake: Catalog, tmp_path: Path
) -> None:
    table = make_table(lake)
    table.append(rows_of(FIRST, "production"))
    where = table.location().removeprefix("file://")
    field = "spec.outputs[0].publish.location"
    choose = "choose an empty directory, or one that does not exist"
    for location, relation in (
        (f"{where}/export", "within"),
        (f"file://{where}", "within"),
        (str(Path(where).parent), "around"),
    ):
        (problem,) = problems(location)
        assert problem == (
            f"{field}: {location} is {relation} the table lake.raw.out ({table.location()});"
            f" {choose}"
        )
    work = tmp_path / "work"
    assert problems(f"{work}/out", workspace=str(work)) == [
        f"{field}: {work}/out is within the workspace of this Backfill ({work}); {choose}"
    ]
    (tmp_path / "link").symlink_to(work)
    more = exported_to(f"{work}/out/more", name="more")
    both = [exported_to(f"{tmp_path}/link/out"), more]
    said = "\n".join(map(str, check_outputs(both, [OTHER, replace(OTHER, output="more")], WINDOW)))
    assert f"{work}/out/more is within the location of output summary" in said
    assert "is within the workspace" in problems(f"{tmp_path}/link/out", workspace=str(work))[0]
    assert problems("s3a://lake/") == [
        f"{field}: s3a://lake/ is a whole bucket; use a directory in it"
    ]
    assert "out/plays is a relative path" in problems("out/plays")[0]


def test_a_pods_own_disk_is_refused(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 0:1 / / rw - overlay overlay rw\n"
        f"2 1 0:2 / {tmp_path}/volume rw,relatime master:1 - nfs store:/ rw\n"
    )
    monkeypatch.setattr(export_places, "_MOUNTS", mounts)
    assert problems(tmp_path / "volumes" / "out") == []
    monkeypatch.setenv(JOB_VARIABLE, "january-job-0123456789")
    assert problems(f"file://{tmp_path}/volume/out") == []
    assert problems(tmp_path / "volumes" / "out") == [
        f"spec.outputs[0].publish.location: {tmp_path}/volumes/out is on no volume, and the disk"
        " of the job's pod is lost with the pod; mount a volume there in the application's"
        " driver, or use an object store"
    ]


def test_columns_that_have_another_name_in_files_are_refused(lake: Catalog, place: Path) -> None:
    named = Schema(*COLUMNS.fields, NestedField(4, "user-id", LongType()))
    table = make_table(lake, columns=named)
    assert problems(place) == [
        "spec.outputs[0].table: column user-id of lake.raw.out is called user_x2Did in data"
        " files, and publish mode Export copies data files unchanged; rename the column to a name"
        " of letters, digits and _, or publish to the table"
    ]
    rows = rows_of(FIRST, "backfill").append_column("user-id", [[7, 8]])
    stage_rows(table, 0, rows)
    export(exported_to(place), RESULT, None)
    assert "user_x2Did" in pq.read_schema(min(place.glob("*.parquet"))).names


def test_a_directory_that_cannot_be_written_is_said_before_anything_runs(
    lake: Catalog, tmp_path: Path
) -> None:
    make_table(lake)
    (tmp_path / "file").write_text("")
    (problem,) = problems(tmp_path / "file" / "out")
    assert problem.startswith("spec.outputs[0].publish.location:")
    assert problem.endswith("; check the location, and the properties of the catalog of the table")
