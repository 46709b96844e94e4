"""Catalogs, tables and Secrets of a team that wants to run its code in the operator, or to read
what is the operator's.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from refusals import refusals

import backfill
from backfill.api.catalog_properties import GivenCatalog
from backfill.controller.jobs.pool import JobPool
from backfill.iceberg.untrusted_properties import refused
from hostile_catalog import HostileCatalog, hostile_catalog
from table_jobs import LOOPBACK, Clicks, ended
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.hostile

KEY = ("default", "january")
_NUMBERS = count()
LIBRARY = Path(__import__("pyiceberg").__file__).parent


@pytest.fixture
def hostile(table: Table) -> Iterator[Callable[..., HostileCatalog]]:
    """Makes a catalog with one answer that is not right."""
    with ExitStack() as servers:
        yield lambda **answers: servers.enter_context(hostile_catalog(table, **answers))


def problems(
    clicks: Clicks, shared: Path, catalogs: Mapping[str, Mapping[str, str]], **spec: Any
) -> dict[str, str]:
    """What a plan job in the operator says of each of these catalogs, whose properties are in
    Secrets of the team's.
    """
    given = {name: GivenCatalog(properties) for name, properties in catalogs.items()}
    pool = JobPool(lambda _key: given, directories=(shared,), addresses=LOOPBACK)
    sources = [
        {"name": f"s-{number}", "table": f"{name}.raw.clicks", "timestampColumn": "at", **spec}
        for number, name in enumerate(catalogs)
    ]
    try:
        runner = pool.runner(KEY, lambda: None)
        job = clicks.plan_job(f"workspace-{next(_NUMBERS)}", sources=sources)
        runner.start(job)
        state = ended(runner, job)
    finally:
        pool.close()
    return refusals(state, catalogs)


def test_no_server_or_table_has_the_operator_call_what_it_names(
    clicks: Clicks, shared: Path, hostile: Callable[..., HostileCatalog], tmp_path: Path
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
    found = problems(clicks, shared, {name: catalog.properties for name, catalog in made.items()})
    assert not [name for name, mark in marks.items() if mark.exists()]
    assert set(found) == {
        "over",
        "below",
        "table",
        "vended",
        "retry",
    }, "a table's own properties do not say how it is opened"
    assert all("is not loaded here" in text for text in found.values()), found


def test_no_server_chooses_how_the_operator_logs_in_or_where(
    clicks: Clicks, shared: Path, hostile: Callable[..., HostileCatalog], tmp_path: Path
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
    assert problems(clicks, shared, catalogs) == {}
    assert not mark.exists()
    assert thief.asked == []


def test_a_table_whose_property_names_code_is_not_written_to(
    clicks: Clicks, shared: Path, table: Table
) -> None:
    """``rmtree`` takes the table's location, and its properties for "ignore errors"."""
    metadata = Path(table.metadata_location)
    kept = json.loads(metadata.read_text())
    properties = kept["properties"] | {"write.py-location-provider.impl": "shutil.rmtree"}
    # PyIceberg itself would call it here
    metadata.write_text(json.dumps(kept | {"properties": properties}))
    try:
        found = problems(clicks, shared, {"lake": clicks.properties}, snapshot={"protect": True})
        assert metadata.exists()
        assert "write.py-location-provider.impl is shutil.rmtree" in found["lake"]
    finally:
        metadata.write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"py-io-impl": "builtins.eval"}, "py-io-impl"),
        ({"py-catalog-impl": "builtins.eval"}, "py-catalog-impl"),
        ({"s3.retry-strategy-impl": "builtins.eval"}, "s3.retry-strategy-impl"),
        ({"auth.type": "custom", "auth.impl": "builtins.eval"}, "auth.type"),
        ({"header.authorization": "Bearer x"}, "header.authorization"),
        ({"ssl.cabundle": "/etc/passwd"}, "ssl.cabundle"),
        ({"client.profile-name": "another"}, "client.profile-name"),
        ({"hdfs.kerberos_ticket": "/tmp/krb5cc"}, "hdfs.kerberos_ticket"),
        ({"gcs.session-kwargs": "{}"}, "gcs.session-kwargs"),
        ({"gcs.oauth2.token": "/var/run/secrets/token"}, "gcs.oauth2.token"),
        ({"gcs.service.host": "http://collector"}, "gcs.service.host"),
        ({"adls.blob-storage-authority": "collector"}, "adls.blob-storage-authority"),
        ({"DEFAULT_SCHEME": "hdfs"}, "DEFAULT_SCHEME"),
        ({"type": "in-memory"}, "type"),
        (
            {"type": "sql", "uri": "postgresql://db/lake?sslkey=/var/run/secrets/key"},
            "parameter sslkey",
        ),
        ({"type": "sql", "uri": "postgresql://db/lake?sslrootcert=/etc/passwd"}, "sslrootcert"),
        ({"type": "sql", "uri": "postgresql://db/lake?plugin=evil"}, "parameter plugin"),
        ({"type": "sql", "uri": "postgresql:///lake?host=/var/run"}, "must contain a host"),
        ({"type": "sql", "uri": "postgresql+asyncpg://db/lake"}, "must begin with postgresql"),
        (
            {"type": "sql", "uri": "mysql+pymysql://db/lake?local_infile=1"},
            "must begin with postgresql",
        ),
        ({"type": "sql", "uri": "sqlite:////tmp/any.db?mode=rwc"}, "must not have parameters"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else str(value),
)
def test_a_secret_is_taken_only_with_properties_that_reach_nothing_of_the_operators(
    properties: dict[str, str], said: str
) -> None:
    (wrong,) = refused({"type": "rest", "uri": "https://catalog"} | properties)[:1]
    assert said in f"{wrong.name} {wrong.why}"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PY-IO-IMPL",
            "Py-Io-Impl",
            " py-io-impl",
            "py-io-impl ",
            "py-io-impl\n",
            "py_io_impl",
            "py\u2010io\u2010impl",
            "io-impl",
        ),
        *(
            "py-catalog-impl",
            "catalog-impl",
            "rest.py-catalog-impl",
            "catalog.lake.py-catalog-impl",
            "S3.Endpoint",
            "s3.ENDPOINT",
        ),
        *(
            "s\N{FULLWIDTH DIGIT THREE}.endpoint",
            "\N{LATIN SMALL LETTER LONG S}3.endpoint",
            "s3..endpoint",
            ".s3.endpoint",
            "URI",
        ),
        *(
            "auth",
            "auth.type",
            "auth.impl",
            "auth.custom.impl",
            "auth.google.credentials_path",
            "auth.entra.token_file_path",
        ),
        *(
            "rest.auth.type",
            "rest.auth.oauth2.impl",
            "rest.authorization",
            "auth.manager",
            "botocore_session",
            "botocore-session",
        ),
        *(
            "s3.signer.impl",
            "s3.signer.",
            "s3.signer.properties",
            "s3.proxy-uri",
            "s3.profile-name",
            "glue.profile-name",
            "echo",
        ),
        *(
            "header.authorization",
            "header.X-Forwarded-For",
            "header.host",
            "header.",
            "header.x-iceberg-access-delegation.impl",
        ),
        *(
            "http_proxy",
            "HTTPS_PROXY",
            "proxies",
            "ssl.client.cert",
            "ssl.cabundle",
            "DEFAULT_SCHEME",
            "DEFAULT_NETLOC",
            "hf.endpoint",
        ),
        *(
            "hive.kerberos-authentication",
            "write.py-location-provider.impl",
            "adls.sas-token",
            "downcast-ns-timestamp-to-us-on-write",
            "",
        ),
    ],
)
def test_a_name_that_is_nearly_on_the_list_is_not_taken(name: str) -> None:
    found = [wrong.name for wrong in refused({"type": "rest", "uri": "https://catalog", name: "x"})]
    assert (found == [name]) is (name != "adls.sas-token")


@pytest.mark.parametrize(
    "kind",
    [
        "REST ",
        "bigquery",
        "in_memory",
        "noop",
        "custom",
        "rest\n",
        "\N{LATIN SMALL LETTER LONG S}ql",
    ],
)
def test_no_other_type_of_catalog_is_opened(kind: str) -> None:
    assert [wrong.name for wrong in refused({"type": kind, "uri": "https://catalog"})] == ["type"]


def test_secrets_that_people_have_are_taken() -> None:
    s3 = {
        "s3.endpoint": "https://store",
        "s3.access-key-id": "a",
        "s3.secret-access-key": "b",
        "warehouse": "s3://lake",
    }
    database = "postgresql+psycopg2://iceberg:p%40ss@db-1,db-2:5432/iceberg?sslmode=verify-full&sslrootcert=system"
    for properties in (
        {
            "type": "rest",
            "uri": "https://catalog",
            "credential": "id:secret",
            "scope": "all",
            "warehouse": "lake",
        },
        {"uri": "https://catalog", "rest.sigv4-enabled": "true", "rest.signing-name": "glue", **s3},
        {"type": "sql", "uri": database, **s3},
        {"uri": "thrift://metastore:9083", **s3},
        {
            "type": "glue",
            "glue.region": "eu-central-1",
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        },
        {
            "type": "rest",
            "uri": "https://c",
            "gcs.oauth2.token": "ya29.x",
            "gcs.service.host": "https://store",
        },
        {
            "type": "rest",
            "uri": "https://c",
            "adls.account-name": "lake",
            "adls.sas-token.lake.dfs.core.windows.net": "sv=1",
        },
    ):
        assert refused(properties) == []


def test_neither_secret_nor_catalog_has_files_of_the_operator_read(
    shared: Path, hostile: Callable[..., HostileCatalog], tmp_path: Path
) -> None:
    secret, link = tmp_path / "token", shared / "link"
    secret.write_text("the operator's token")
    link.symlink_to(tmp_path)
    places = {
        "path": str(secret),
        "uri": f"file://{secret}",
        "short": f"file:{secret}",
        "capitals": f"FILE://{secret}",
        "host": f"file://localhost{secret}",
        "above": f"{shared}/../{Path(os.path.relpath(secret, shared.parent))}",
        "link": f"{link}/token",
        "hdfs": f"hdfs://name{secret}",
        "fsspec": f"file://{secret}",
    }
    chains = (
        "simplecache::file://",
        "filecache::file://",
        "blockcache::",
        "zip://x::file://",
        "reference://",
        "local://",
        "memory://",
    )
    others = (
        "hf://",
        "github://o:r@main",
        "http://127.0.0.1",
        "ftp://h",
        "sftp://h",
        "dask://h",
        "git://",
        "data:,",
    )
    places |= {
        f"scheme-{number}": f"{begin}{secret}" for number, begin in enumerate((*chains, *others))
    }
    places |= {
        f"fsspec-{name}": place for name, place in places.items() if name.startswith("scheme")
    }
    catalogs: dict[str, Mapping[str, str]] = {
        "database": {"type": "sql", "uri": f"sqlite:///{tmp_path}/any.db"},
        "relative": {"type": "sql", "uri": "sqlite:///any.db"},
    }
    for name, place in places.items():
        catalog = hostile(
            config={"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"} if "fsspec" in name else {}
        )
        for snapshot in catalog.metadata["snapshots"]:
            snapshot["manifest-list"] = place
        catalogs[name] = catalog.properties
    order = json.dumps({"catalogs": catalogs, "directory": str(shared)})
    ended = subprocess.run(
        [sys.executable, "-c", _READ],
        input=order,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    link.unlink()
    found: dict[str, str] = json.loads(ended.stdout)
    assert set(found) == set(catalogs), ended.stderr
    for name, said in found.items():
        other = name == "hdfs" or "scheme" in name
        assert ("locations are not opened" if other else "on the operator's own disk") in said, (
            name,
            said,
        )
    assert not (tmp_path / "any.db").exists()


_READ = """
import json, sys
from ipaddress import ip_network
from pathlib import Path
from backfill.api.catalog_properties import GivenCatalog
from backfill.iceberg.catalogs import open_catalog, work_for_others
order, said = json.load(sys.stdin), {}
given = {name: GivenCatalog(properties) for name, properties in order["catalogs"].items()}
work_for_others(given, (Path(order["directory"]),), (ip_network("127.0.0.0/8"),))
for name in given:
    try:
        table = open_catalog(name).load_table("raw.clicks")
        said[name] = str(table.current_snapshot().manifests(table.io))
    except Exception as error:
        said[name] = str(error)
print(json.dumps(said))
"""
"""What a job process does, for many catalogs one after the other."""


def test_every_place_where_pyiceberg_imports_what_it_is_told_is_known() -> None:
    """A new one has to be closed in ``iceberg/import_points.py``."""
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


def test_nothing_of_the_operators_reads_pickles_or_opens_a_catalog_elsewhere() -> None:
    package = Path(backfill.__file__).parent
    sources = {
        file.relative_to(package).as_posix(): file.read_text() for file in package.rglob("*.py")
    }
    pickles = re.compile(
        r"^\s*(?:import|from) (?:pickle|cloudpickle|multiprocessing|shelve|marshal)\b", re.MULTILINE
    )
    assert [
        name
        for name, text in sources.items()
        if pickles.search(text) and not name.startswith("runtime/")
    ] == []
    assert [name for name, text in sources.items() if "load_catalog" in text] == []


@pytest.mark.parametrize("by", ["defaults", "overrides"])
def test_a_server_that_hides_a_tables_history_does_not_make_its_files_seem_unused(
    clicks: Clicks, shared: Path, hostile: Callable[..., HostileCatalog], by: str
) -> None:
    catalog = hostile(**{by: {"snapshot-loading-mode": "refs"}})
    assert problems(clicks, shared, {"refs": catalog.properties}) == {}
    loaded = [path for path in catalog.asked if "/tables/" in path]
    assert loaded and all("snapshots=all" in path for path in loaded)
