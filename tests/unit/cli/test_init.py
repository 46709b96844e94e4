"""``backfill init``: its arguments, and the file that it writes. What the program does comes from a
driver that is not started here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from kubernetes.config import kube_config
from pyiceberg.catalog import Catalog

from backfill.api.errors import BackfillError
from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.protocol.survey_result import Survey, SurveyedColumn, SurveyedInput, SurveyedQuery
from cases import cases
from histories import UTC_TIME
from local_runs import Command, Ended
from manifests import spark_application

WINDOW = "2024-03-01/2024-03-02"
Init = Callable[..., Ended]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the driver answers."""

    def set_to(**survey: Any) -> None:
        text = Survey.model_validate(survey).model_dump_json(by_alias=True)
        monkeypatch.setattr(
            "backfill.controller.proposing.survey_program.ask", lambda *_: text.encode()
        )

    set_to(
        inputs=(SurveyedInput(kind="Topic", name="clicks"),),
        queries=(SurveyedQuery(name="hourly", inputs=("clicks",)),),
    )
    return set_to


@pytest.fixture
def init(backfill: Command, tmp_path: Path, answer: Callable[..., None], lake: Catalog) -> Init:
    """Runs the command for an application in a directory of its own."""
    lake.create_table("raw.clicks", pa.schema([("ingested", UTC_TIME)]))
    directory = tmp_path / "app"
    directory.mkdir()
    (directory / "app.py").write_text("")
    (directory / "lib.py").write_text("")
    application = spark_application(mainApplicationFile="app.py", deps={"pyFiles": ["lib.py"]})
    (directory / "app.yaml").write_text(f"# ours\n{yaml.safe_dump(application)}")

    def run(*arguments: str, window: str = WINDOW, file: str = "app/app.yaml") -> Ended:
        return backfill("init", "--application", file, "--window", window, *arguments)

    return run


def test_the_manifest_is_printed_behind_the_application_as_it_was_written(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "app")
    end = init("-n", "streaming", file="app.yaml")
    assert end.status == 0, end.err
    application, _, backfill = end.out.partition("---\n")
    assert application.startswith("# ours\napiVersion: sparkoperator.k8s.io/v1beta2")
    found = load_manifests(backfill, require_application=False).backfill
    assert (found.metadata.name, found.metadata.namespace) == ("app-2024-03-01", "streaming")
    assert found.spec.sources[0].table == "lake.raw.clicks"
    assert "backfill plan --explain FILE" in end.err


def test_a_file_elsewhere_has_the_paths_of_the_program_in_full(init: Init, tmp_path: Path) -> None:
    end = init("--output", "my b.yaml")
    assert (end.status, end.out) == (0, ""), end.err
    assert end.err.endswith(": backfill plan --explain 'my b.yaml'\n")
    (tmp_path / "printed.yaml").write_text(init().out)
    for name in ("my b.yaml", "printed.yaml"):
        found = load_manifests(tmp_path / name)
        assert found.application is not None
        assert found.application.main_application_file == str(tmp_path / "app" / "app.py")
        assert found.application.py_files == (str(tmp_path / "app" / "lib.py"),)

    end = init("--output", "app/b.yaml")
    assert end.status == 0, end.err
    assert "mainApplicationFile: app.py" in (tmp_path / "app" / "b.yaml").read_text()


def test_a_file_is_never_replaced(init: Init, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("mine")
    end = init("--output", "b.yaml")
    assert (end.status, end.err) == (
        2,
        "error: --output: b.yaml already exists; choose another file\n",
    )
    assert (tmp_path / "b.yaml").read_text() == "mine"


def test_a_file_in_no_directory_is_refused_before_the_program_runs(
    init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("backfill.controller.proposing.survey_program.ask")
    end = init("--output", "none/b.yaml")
    assert (end.status, end.err) == (
        2,
        "error: --output: there is no directory none; create it, or choose another file\n",
    )


@cases(
    ("window", "message"),
    {
        "no slash": ("2024-03-01", '"2024-03-01" is not START/END; write it as 2021-07-11T00:'),
        "no date": ("2024-03-01/tomorrow", '"tomorrow" is neither a date nor a time in RFC 3339; '),
        "no time": ("2024-03-01 6:00/2024-03-02", '"2024-03-01 6:00" is neither a date nor a time'),
        "no such date": ("2024-02-30/2024-03-01", '"2024-02-30" is not a valid date'),
        "backwards": ("2024-03-02/2024-03-01", '"2024-03-02/2024-03-01": the end is not after'),
    },
)
def test_a_window_that_is_none_is_refused(init: Init, window: str, message: str) -> None:
    end = init(window=window)
    assert end.status == 2
    assert end.err.startswith(f"error: --window: {message}")
    assert end.err.count("write it as") == 1


def test_a_name_without_a_cluster_is_refused(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what KUBECONFIG is when the library is imported
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    (tmp_path / "mine.py").write_text("")
    assert "there is no file departures; if it is a Spark" in init(file="departures").err
    end = init("--main-file", "mine.py", file="departures")
    assert end.status == 1
    assert "no cluster to connect to" in end.err
    assert "no file app/b.yaml; specify a manifest" in init(file="app/b.yaml").err


def test_another_main_program_takes_the_place_of_the_manifests(init: Init, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    end = init("--main-file", "mine.py", "--output", "app/b.yaml")
    assert end.status == 0, end.err
    found = load_manifests(tmp_path / "app" / "b.yaml").application
    assert found is not None
    assert found.main_application_file == str(tmp_path / "mine.py")
    assert found.py_files == (str(tmp_path / "app" / "lib.py"),)
    assert "--main-file: there is no file none.py; specify" in init("--main-file", "none.py").err


def test_an_application_whose_name_no_resource_can_have_is_given_another(
    init: Init, tmp_path: Path
) -> None:
    application = spark_application("日本", mainApplicationFile="app.py")
    (tmp_path / "app" / "app.yaml").write_text(yaml.safe_dump(application))
    end = init()
    assert end.status == 0, end.err
    assert "\n  name: backfill-2024-03-01\n" in end.out


def test_a_file_without_a_single_application_is_refused(init: Init, tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("kind: ConfigMap")
    assert "must contain exactly one SparkApplication; found: none" in init(file="none.yaml").err
    two = [spark_application(name, mainApplicationFile="app.py") for name in ("a", "b")]
    (tmp_path / "two.yaml").write_text(yaml.safe_dump_all(two))
    assert "must contain exactly one SparkApplication; found: a, b" in init(file="two.yaml").err


def test_a_namespace_that_is_not_the_applications_is_refused(init: Init, tmp_path: Path) -> None:
    application = spark_application(mainApplicationFile="app.py")
    application["metadata"]["namespace"] = "streaming"
    (tmp_path / "app" / "app.yaml").write_text(yaml.safe_dump(application))
    end = init("-n", "other")
    assert (end.status, end.err) == (
        2,
        "error: --namespace: other is not the application's namespace, which is streaming; remove this"
        " option\n",
    )
    assert "namespace: streaming" in init("-n", "streaming").out.partition("---\n")[2]
    assert "namespace: streaming" in init().out.partition("---\n")[2]


def test_a_program_without_streams_is_refused(init: Init, answer: Callable[..., None]) -> None:
    answer()
    assert "reads no Kafka topic and no table as a stream; check its arguments" in init().err
    answer(inputs=(SurveyedInput(kind="Topic", name="clicks"),))
    assert "starts no query that writes a result" in init().err


def test_errors_of_the_program_are_told(init: Init, answer: Callable[..., None]) -> None:
    answer(reason="ApplicationFailed", message="ValueError: out of coffee")
    end = init()
    assert (end.status, end.err) == (1, "error: ValueError: out of coffee\n")


def test_what_a_program_has_logged_is_not_in_the_manifest(
    init: Init, answer: Callable[..., None], lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("raw.hourly", pa.schema([("began", UTC_TIME)]))
    columns = (SurveyedColumn(name="began", type="timestamp", is_event_time=True),)
    query = SurveyedQuery(name="hourly", inputs=("clicks",), columns=columns)
    answer(inputs=(SurveyedInput(kind="Topic", name="clicks"),), queries=(query,))

    def fail(*_: object) -> None:
        raise BackfillError("the application ended:\njdbc:postgresql://me:hunter2@db/lake")

    monkeypatch.setattr("backfill.cli.init.dry_run", fail)
    end = init()
    assert end.status == 0, end.err
    assert "backfill plan failed: the application ended" in end.out
    assert "jdbc" not in end.out
    assert "jdbc:postgresql://***@db/lake" in end.err


def test_catalogs_that_cannot_be_looked_into_are_named(
    init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__TYPE", "sql")
    end = init()
    assert end.status == 0, end.err
    words = " ".join(line.removeprefix("#").strip() for line in end.out.splitlines())
    assert "TODO: catalog other cannot be opened" in words


def test_what_lists_and_maps_hold_is_no_column(
    init: Init, answer: Callable[..., None], lake: Catalog
) -> None:
    columns = {
        "metadata": pa.struct([("ingested", UTC_TIME), ("offset", pa.int64())]),
        "properties": pa.map_(pa.string(), UTC_TIME),
        "visits": pa.list_(pa.struct([("arrived", UTC_TIME), ("partition", pa.int32())])),
    }
    lake.create_table("raw.orders", pa.schema(list(columns.items())))
    query = SurveyedQuery(name="hourly", inputs=("orders",))
    answer(inputs=(SurveyedInput(kind="Topic", name="orders"),), queries=(query,))
    backfill = init().out.partition("---\n")[2]
    (source,) = load_manifests(backfill, require_application=False).backfill.spec.sources
    assert source.timestamp_column == "metadata.ingested"
    kafka = source.kafka
    assert (kafka.offset_column, kafka.partition_column, kafka.key_column) == (
        "metadata.offset",
        None,
        None,
    )


def test_a_table_that_cannot_be_loaded_is_named(init: Init, tmp_path: Path) -> None:
    for metadata in tmp_path.glob("warehouse/**/*.metadata.json"):
        metadata.unlink()
    end = init()
    assert end.status == 0, end.err
    words = " ".join(line.strip().removeprefix("#").strip() for line in end.out.splitlines())
    assert "TODO: table lake.raw.clicks cannot be loaded" in words


def test_on_a_cluster_it_says_where_it_works(
    backfill: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = backfill("--context", "prod", "init")
    assert end.status == 2
    assert "works on this machine, where the main program is" in " ".join(
        end.err.replace("│", " ").split()
    )
