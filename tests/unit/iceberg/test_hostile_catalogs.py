"""Catalogs whose servers, and tables whose owners, want a job to run their code or to send them
its credentials.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

import backfill
from backfill.api.catalog_properties import CATALOGS_VARIABLE
from backfill.api.errors import InvalidPlanInput
from backfill.iceberg.server_properties import from_server, with_answer
from hostile_catalog import HostileCatalog, hostile_catalog
from table_jobs import Clicks

pytestmark = pytest.mark.hostile

_NUMBERS = count()
LIBRARY = Path(__import__("pyiceberg").__file__).parent


@pytest.fixture
def hostile(table: Table) -> Iterator[Callable[..., HostileCatalog]]:
    """Makes a catalog with one answer that is not right."""
    with ExitStack() as servers:
        yield lambda **answers: servers.enter_context(hostile_catalog(table, **answers))


Problems = Callable[..., dict[str, str]]


@pytest.fixture
def problems(clicks: Clicks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problems:
    """What a plan job in a pod that mounts these catalogs says of each of them."""
    mounted = tmp_path / "catalogs"
    monkeypatch.setenv(CATALOGS_VARIABLE, str(mounted))

    def planned(catalogs: Mapping[str, Mapping[str, str]], **spec: Any) -> dict[str, str]:
        for name, properties in catalogs.items():
            (mounted / name).mkdir(parents=True)
            for key, value in properties.items():
                (mounted / name / key).write_text(value)
        sources = [
            {"name": f"s-{number}", "table": f"{name}.raw.clicks", "timestampColumn": "at", **spec}
            for number, name in enumerate(catalogs)
        ]
        job = clicks.plan_job(f"workspace-{next(_NUMBERS)}", sources=sources)
        try:
            job.run(lambda _progress: None)
        except InvalidPlanInput as error:
            texts = [str(problem) for problem in error.problems]
        else:
            return {}
        named = {
            name: [t for t in texts if f"{name}.raw.clicks" in t or f"catalog {name} " in t]
            for name in catalogs
        }
        assert sum(map(len, named.values())) == len(texts), texts
        return {name: " ".join(found) for name, found in named.items() if found}

    return planned


def test_no_server_or_table_has_a_job_call_what_it_names(
    problems: Problems, hostile: Callable[..., HostileCatalog], tmp_path: Path
) -> None:
    """``Popen`` takes the names of the properties for its arguments, and the server's come
    first.
    """
    marks = {
        name: tmp_path / name
        for name in ("honest", "over", "below", "table", "vended", "property", "retry")
    }
    begin = {name: {"/usr/bin/touch": "", str(mark): ""} for name, mark in marks.items()}
    code = {"py-io-impl": "subprocess.Popen"}
    made = {name: hostile(defaults=begin[name]) for name in marks}
    made["over"].overrides = code
    made["below"].defaults |= code
    made["table"].config = code
    made["vended"].credentials = [{"prefix": made["vended"].metadata_location, "config": code}]
    made["property"].metadata["properties"] |= code
    made["retry"].overrides = {"s3.retry-strategy-impl": "builtins.breakpoint"}
    assert problems({name: catalog.properties for name, catalog in made.items()}) == {}
    assert not [name for name, mark in marks.items() if mark.exists()]


def test_no_server_chooses_how_a_job_logs_in_or_where(
    problems: Problems, hostile: Callable[..., HostileCatalog], tmp_path: Path
) -> None:
    mark, thief = tmp_path / "mark", hostile()
    shell = {"args": f"touch {mark}", "shell": True}
    made = {
        "custom": {"auth": {"type": "custom", "impl": "subprocess.Popen", "custom": shell}},
        "named": {"auth": {"type": "subprocess.Popen", "subprocess.Popen": shell}},
        "file": {"auth": {"type": "google", "google": {"credentials_path": str(mark)}}},
        "certificate": {"ssl": {"client": {"cert": "/etc/passwd", "key": "/etc/passwd"}}},
        "elsewhere": {"oauth2-server-uri": f"{thief.uri}/tokens", "token": "another"},
    }
    mine = {"token": "mine", "oauth2-server-uri": "http://127.0.0.1:9/token"}
    catalogs = {
        name: hostile(overrides=overrides).properties | mine for name, overrides in made.items()
    }
    assert problems(catalogs) == {}
    assert not mark.exists()
    assert thief.asked == []


@pytest.fixture
def add_property(table: Table) -> Iterator[Callable[[str, str], None]]:
    """Adds a property to the table, as somebody who may write its metadata."""
    metadata = Path(table.metadata_location)
    kept = metadata.read_text()

    def add(name: str, value: str) -> None:
        parts = json.loads(kept)
        parts["properties"][name] = value
        metadata.write_text(json.dumps(parts))

    yield add
    metadata.write_text(kept)


def test_a_table_whose_property_names_code_is_not_written_to(
    clicks: Clicks, problems: Problems, table: Table, add_property: Callable[[str, str], None]
) -> None:
    """``rmtree`` takes the table's location, and its properties for "ignore errors"."""
    add_property("write.py-location-provider.impl", "shutil.rmtree")
    # PyIceberg itself would call it here
    found = problems({"lake": clicks.properties}, snapshot={"protect": True})
    assert Path(table.metadata_location).exists()
    assert "write.py-location-provider.impl is shutil.rmtree" in found["lake"]


def test_no_property_of_a_table_says_how_its_files_are_opened(
    clicks: Clicks, problems: Problems, add_property: Callable[[str, str], None]
) -> None:
    add_property("py-io-impl", "subprocess.Popen")
    assert problems({"lake": clicks.properties}) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "builtins.eval") for name in ("py-io-impl", "py-catalog-impl")),
        ("s3.retry-strategy-impl", "builtins.eval"),
        *(("PY-IO-IMPL", "x"), (" py-io-impl", "x"), ("py_io_impl", "x"), ("io-impl", "x")),
        ("py\u2010io\u2010impl", "pyiceberg.io.pyarrow.PyArrowFileIO"),
        ("py-io-impl", "pyiceberg.io.pyarrow.PyArrowFileIO\n"),
        ("write.py-location-provider.impl", "shutil.rmtree"),
        *(("auth", {"type": "custom"}), ("auth.type", "custom"), ("auth.impl", "x")),
        ("auth.google.credentials_path", "/etc/passwd"),
        *(("ssl.cabundle", "/etc/passwd"), ("ssl.client.cert", "/etc/passwd")),
        *(("header.authorization", "Bearer x"), ("header.host", "collector")),
        *(("s3.proxy-uri", "http://collector"), ("http_proxy", "http://collector")),
        *(("client.profile-name", "another"), ("botocore_session", "x")),
        ("gcs.service.host", "http://collector"),
        *((f"adls.{name}-storage-authority", "collector") for name in ("blob", "dfs")),
        *((f"adls.{name}-storage-scheme", "http") for name in ("blob", "dfs")),
        *(("adls.account-host", "collector"), ("adls.account-name", "collector.example/")),
        *(("hdfs.kerberos_ticket", "/tmp/krb5cc"), ("gcs.session-kwargs", "{}")),
        *(("DEFAULT_SCHEME", "hdfs"), ("hf.endpoint", "http://collector"), ("", "x")),
        *(
            ("S3.Endpoint", "x"),
            ("s\N{FULLWIDTH DIGIT THREE}.endpoint", "x"),
            ("s3..endpoint", "x"),
        ),
        *(("token", {"a": "b"}), ("token", ["a"]), ("token", None)),
    ],
    ids=str,
)
def test_what_a_server_may_not_set_is_ignored(name: str, value: object) -> None:
    own = {"type": "rest", "uri": "https://catalog"}
    assert from_server({name: value}) == {}
    assert with_answer(own, {**own, name: value}) == own


@pytest.mark.parametrize("name", ["uri", "oauth2-server-uri", "token", "s3.endpoint"])
def test_where_credentials_are_sent_is_not_replaced(name: str) -> None:
    own = {"uri": "https://catalog", name: "mine"}
    assert with_answer(own, {**own, name: "another"}) == own


def test_what_servers_vend_is_taken() -> None:
    own = {"uri": "https://catalog", "warehouse": "lake", "token": "mine", "ssl": {"a": "b"}}
    vended = {
        "prefix": "lake",
        "warehouse": "s3://lake",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "s3.endpoint": "https://store",
        "s3.session-token": "t",
        "gcs.oauth2.token": "ya29.x",
        "adls.account-name": "lake",
        "adls.sas-token.lake.dfs.core.windows.net": "sv=1",
    }
    assert with_answer(own, {**own, **vended}) == {**own, **vended}
    assert from_server({"s3.remote-signing-enabled": True, "rest-page-size": 5}) == {
        "s3.remote-signing-enabled": "True",
        "rest-page-size": "5",
    }


def test_every_place_where_pyiceberg_imports_what_it_is_told_is_known() -> None:
    """None that a property of a table or of a catalog's server reaches may call anything: see
    ``iceberg/catalogs.py`` and ``iceberg/server_properties.py``.
    """
    found = {}
    for file in LIBRARY.rglob("*.py"):
        calls = re.findall(
            r"import_module\(|__import__\(|(?<!def )(?<![.\w])(?:eval|exec)\(|entry_points",
            file.read_text(),
        )
        if file.parent.name != "cli" and calls:
            found[file.relative_to(LIBRARY).as_posix()] = calls
    assert found.pop("transforms.py") == ["import_module("], "of names that stand in it"
    assert {name for name, calls in found.items() if "import_module(" in calls} == {
        "catalog/__init__.py",
        "catalog/rest/auth.py",
        "io/__init__.py",
        "io/pyarrow.py",
        "table/locations.py",
    }
    assert sum(calls.count("import_module(") for calls in found.values()) == 5
    assert {call for calls in found.values() for call in calls} == {"import_module("}


def test_nothing_reads_pickles_or_opens_a_catalog_elsewhere() -> None:
    package = Path(backfill.__file__).parent
    sources = {
        file.relative_to(package).as_posix(): file.read_text() for file in package.rglob("*.py")
    }
    pickles = re.compile(
        r"^\s*(?:import|from) (?:pickle|cloudpickle|multiprocessing|shelve|marshal)\b", re.MULTILINE
    )
    local_jobs = "controller/local/job_process.py"  # its connection sends bytes only
    assert [
        name
        for name, text in sources.items()
        if pickles.search(text) and not name.startswith("runtime/")
    ] == [local_jobs]
    assert not re.search(r"\.(send|recv)\(", sources[local_jobs])
    assert [name for name, text in sources.items() if "load_catalog" in text] == []


@pytest.mark.parametrize("by", ["defaults", "overrides"])
def test_a_server_that_hides_a_tables_history_does_not_make_its_files_seem_unused(
    problems: Problems, hostile: Callable[..., HostileCatalog], by: str
) -> None:
    catalog = hostile(**{by: {"snapshot-loading-mode": "refs"}})
    assert problems({"refs": catalog.properties}) == {}
    loaded = [path for path in catalog.asked if "/tables/" in path]
    assert loaded and all("snapshots=all" in path for path in loaded)
