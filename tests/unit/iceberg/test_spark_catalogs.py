"""A catalog of the application's Spark properties is opened as Spark opens it. The properties are
those of public projects, with other names and credentials.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.utils.config import Config

from backfill.api.catalog_properties import APPLICATION_CATALOGS_VARIABLE
from backfill.api.errors import InvalidPlanInput
from backfill.iceberg.catalogs import catalog_properties, known_catalogs
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.spark_catalogs import open_catalogs_of, spark_catalogs
from backfill.iceberg.table_listing import KnownTables
from iceberg_tables import catalog_properties as of_sqlite
from iceberg_tables import sqlite_catalog

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
S3_FILES = "org.apache.iceberg.aws.s3.S3FileIO"
MINIO = {
    "spark.hadoop.fs.s3a.endpoint": "http://minio:9000",
    "spark.hadoop.fs.s3a.access.key": "minio-user",
    "spark.hadoop.fs.s3a.secret.key": "minio-password",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
}
IN_MINIO = {
    "s3.endpoint": "http://minio:9000",
    "s3.access-key-id": "minio-user",
    "s3.secret-access-key": "minio-password",
}


def conf(name: str, cls: str = SPARK_CATALOG, **options: str) -> dict[str, str]:
    """The Spark properties of a catalog; in names ``__`` is a dot and ``_`` a hyphen."""
    key = f"spark.sql.catalog.{name}"
    named = {each.replace("__", ".").replace("_", "-"): options[each] for each in options}
    return {key: cls} | {f"{key}.{each}": value for each, value in named.items()}


def one(properties: Mapping[str, str]) -> dict[str, str] | str:
    """What becomes of the only catalog of Spark properties."""
    [found] = spark_catalogs(properties).values()
    return found


def test_polaris_with_oauth_and_vended_credentials() -> None:
    given = conf(
        "polaris",
        type="rest",
        uri="https://polaris.example.com/api/catalog",
        oauth2_server_uri="https://polaris.example.com/api/catalog/v1/oauth/tokens",
        credential="reader:s3cr3t",
        warehouse="quickstart_catalog",
        scope="PRINCIPAL_ROLE:ALL",
        token_refresh_enabled="true",
        io_impl="org.apache.iceberg.io.ResolvingFileIO",
        client__region="us-west-2",
    )
    vended = {"spark.sql.catalog.polaris.header.X-Iceberg-Access-Delegation": "vended-credentials"}
    assert one(given | vended) == {
        "type": "rest",
        "uri": "https://polaris.example.com/api/catalog",
        "oauth2-server-uri": "https://polaris.example.com/api/catalog/v1/oauth/tokens",
        "credential": "reader:s3cr3t",
        "warehouse": "quickstart_catalog",
        "scope": "PRINCIPAL_ROLE:ALL",
        "client.region": "us-west-2",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }


def test_a_rest_catalog_whose_files_have_keys_of_their_own_asks_for_no_others() -> None:
    given = conf(
        "demo",
        catalog_impl="org.apache.iceberg.rest.RESTCatalog",
        uri="http://nessie:19120/iceberg/main/",
        warehouse="warehouse",
        io_impl=S3_FILES,
        s3__endpoint="http://minio:9000",
        s3__access_key_id="minio-user",
        s3__secret_access_key="minio-password",
        s3__path_style_access="true",
    )
    # the keys of S3A, which S3FileIO does not use, are those of another store
    other = {"spark.hadoop.fs.s3a.endpoint": "https://other", "spark.hadoop.fs.s3a.access.key": "x"}
    assert one(given | other) == {
        "type": "rest",
        "uri": "http://nessie:19120/iceberg/main/",
        "warehouse": "warehouse",
        **IN_MINIO,
        "header.X-Iceberg-Access-Delegation": "",
    }


def test_s3_tables_with_signed_requests() -> None:
    given = conf(
        "s3tables",
        type="rest",
        uri="https://s3tables.us-east-2.amazonaws.com/iceberg",
        warehouse="arn:aws:s3tables:us-east-2:111122223333:bucket/lake",
        rest__sigv4_enabled="true",
        rest__signing_name="s3tables",
        rest__signing_region="us-east-2",
        io_impl=S3_FILES,
    )
    assert one(given) == {
        "type": "rest",
        "uri": "https://s3tables.us-east-2.amazonaws.com/iceberg",
        "warehouse": "arn:aws:s3tables:us-east-2:111122223333:bucket/lake",
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "s3tables",
        "rest.signing-region": "us-east-2",
    }


def test_glue_with_files_in_s3() -> None:
    given = conf(
        "glue_catalog",
        catalog_impl="org.apache.iceberg.aws.glue.GlueCatalog",
        io_impl=S3_FILES,
        warehouse="s3://example-lake/iceberg",
        glue__id="111122223333",
        client__region="eu-central-1",
    )
    assert spark_catalogs(given | MINIO) == {
        "glue_catalog": {
            "type": "glue",
            "warehouse": "s3://example-lake/iceberg",
            "glue.id": "111122223333",
            "client.region": "eu-central-1",
        }
    }


@pytest.mark.parametrize(
    "metastore",
    [
        {"spark.sql.catalog.spark_catalog.uri": "thrift://hive-metastore:9083"},
        {"spark.hadoop.hive.metastore.uris": "thrift://hive-metastore:9083"},
        {"spark.hive.metastore.uris": "thrift://hive-metastore:9083"},
    ],
    ids=["uri", "hadoop", "hive"],
)
def test_a_hive_metastore_with_s3a(metastore: dict[str, str]) -> None:
    session = "org.apache.iceberg.spark.SparkSessionCatalog"
    given = conf("spark_catalog", session, type="hive", warehouse="s3a://lake/")
    without_scheme = {
        "spark.hadoop.fs.s3a.endpoint": "minio:9000",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    assert one(given | MINIO | without_scheme | metastore) == {
        "type": "hive",
        "uri": "thrift://hive-metastore:9083",
        "warehouse": "s3a://lake/",
        **IN_MINIO,
    }


def test_jdbc_with_postgresql_and_minio() -> None:
    given = conf(
        "iceberg",
        type="jdbc",
        uri="jdbc:postgresql://postgres.databases.svc:5432/iceberg_catalog",
        jdbc__user="iceberg",
        jdbc__password="p@ss/w:rd%",
        warehouse="s3a://warehouse/",
    )
    assert one(given | MINIO) == {
        "type": "sql",
        "uri": (
            "postgresql+psycopg2://iceberg:p%40ss%2Fw%3Ard%25@postgres.databases.svc:5432"
            "/iceberg_catalog"
        ),
        "init_catalog_tables": "false",
        "warehouse": "s3a://warehouse/",
        **IN_MINIO,
    }


@pytest.mark.parametrize(
    ("uri", "translated"),
    [
        ("jdbc:postgresql://db/lake", "postgresql+psycopg2://db/lake"),
        (
            "jdbc:postgresql://db/lake?user=me&password=hunter2&ssl=true&currentSchema=ice",
            "postgresql+psycopg2://me:hunter2@db/lake?sslmode=verify-full"
            "&options=-csearch_path%3Dice",
        ),
        (
            "jdbc:postgresql://db/lake?sslmode=require&ApplicationName=x",
            "postgresql+psycopg2://db/lake?sslmode=require",
        ),
        ("jdbc:sqlite:/data/catalog.db", "sqlite:////data/catalog.db"),
        ("jdbc:sqlite:file:/data/catalog.db", "sqlite:////data/catalog.db"),
    ],
)
def test_addresses_of_databases(uri: str, translated: str) -> None:
    found = one(conf("lake", type="jdbc", uri=uri))
    assert isinstance(found, dict)
    assert found["uri"] == translated


@pytest.mark.parametrize(
    ("endpoint", "found"),
    [
        ("s3.amazonaws.com", {}),
        ("https://s3.eu-central-1.amazonaws.com", {"s3.region": "eu-central-1"}),
        ("objects.example.com", {"s3.endpoint": "https://objects.example.com"}),
    ],
)
def test_s3a_at_aws_has_a_region_and_no_endpoint(endpoint: str, found: dict[str, str]) -> None:
    given = conf("lake", uri="thrift://hms:9083")
    translated = one(given | {"spark.hadoop.fs.s3a.endpoint": endpoint})
    assert translated == {"type": "hive", "uri": "thrift://hms:9083", **found}


def test_hadoops_properties_of_one_catalog_count_before_those_of_all() -> None:
    given = conf("lake", uri="thrift://hms:9083")
    own = {
        "spark.sql.catalog.lake.hadoop.fs.s3a.access.key": "own",
        "spark.sql.catalog.lake.hadoop.fs.s3a.path.style.access": "false",
    }
    found = one(given | MINIO | own)
    assert isinstance(found, dict)
    assert found["s3.access-key-id"] == "own"
    assert found["s3.force-virtual-addressing"] == "true"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            conf("lake", type="hadoop", warehouse="s3a://lake/warehouse"),
            "spark.sql.catalog.lake.type is hadoop, which PyIceberg cannot open",
        ),
        (
            conf(
                "nessie",
                catalog_impl="org.apache.iceberg.nessie.NessieCatalog",
                uri="http://nessie:19120/api/v1",
            ),
            (
                "spark.sql.catalog.nessie.catalog-impl is org.apache.iceberg.nessie.NessieCatalog,"
                " which PyIceberg cannot open"
            ),
        ),
        (
            conf("v2", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
            (
                "spark.sql.catalog.v2 is org.apache.spark.sql.delta.catalog.DeltaCatalog, which is"
                f" not Iceberg's {SPARK_CATALOG}"
            ),
        ),
        (
            conf("lake", type="jdbc", uri="jdbc:mysql://db:3306/lake", jdbc__password="hunter2"),
            (
                "spark.sql.catalog.lake.uri is not of the form jdbc:postgresql://HOST/DATABASE or"
                " jdbc:sqlite:FILE"
            ),
        ),
        (
            conf("lake", type="jdbc", uri="jdbc:postgresql://one:5432,two:5432/lake"),
            (
                "spark.sql.catalog.lake.uri is not of the form jdbc:postgresql://HOST/DATABASE or"
                " jdbc:sqlite:FILE"
            ),
        ),
        (
            conf(
                "biglake",
                type="rest",
                uri="https://biglake.googleapis.com/iceberg/v1/restcatalog",
                rest__auth__type="org.apache.iceberg.gcp.auth.GoogleAuthManager",
            ),
            (
                "spark.sql.catalog.biglake.rest.auth.type is"
                " org.apache.iceberg.gcp.auth.GoogleAuthManager, which is not supported"
            ),
        ),
        (
            conf(
                "glue_catalog",
                type="glue",
                client__factory="org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
                client__assume_role__arn="arn:aws:iam::111122223333:role/reader",
                client__assume_role__region="eu-central-1",
            ),
            (
                "spark.sql.catalog.glue_catalog.client.assume-role.arn is"
                " arn:aws:iam::111122223333:role/reader, a role that PyIceberg does not assume for"
                " Glue"
            ),
        ),
        (conf("lake", type="rest"), "spark.sql.catalog.lake.uri is missing"),
        (
            conf("lake"),
            ("spark.sql.catalog.lake.uri is missing, and so is spark.hadoop.hive.metastore.uris"),
        ),
    ],
)
def test_what_is_not_translated_has_a_reason(given: dict[str, str], why: str) -> None:
    assert one(given) == why


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Spark properties of a SQL catalog ``my_lake`` with a table, and of one with a reason."""
    monkeypatch.setenv(APPLICATION_CATALOGS_VARIABLE, "")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    catalog = sqlite_catalog(tmp_path, "my_lake")
    catalog.create_namespace("raw")
    catalog.create_table("raw.plays", schema=pa.schema([("at", pa.timestamp("us", "UTC"))]))
    uri = f"jdbc:sqlite:{tmp_path}/catalog.db"
    return conf("my_lake", type="jdbc", uri=uri) | conf("dirs", type="hadoop")


def test_tables_of_the_application_are_found_and_opened(application: dict[str, str]) -> None:
    open_catalogs_of(application)
    assert "my_lake" in known_catalogs()
    assert "dirs" not in known_catalogs()
    assert KnownTables().find("raw.plays") == "my_lake.raw.plays"
    assert Catalogs().load_table("my_lake.raw.plays", "").schema().find_field("at")


def test_a_database_without_a_catalog_gets_no_tables(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    open_catalogs_of(conf("lake", type="jdbc", uri="jdbc:sqlite:/x.db"), environment)
    found = json.loads(environment[APPLICATION_CATALOGS_VARIABLE])["lake"]
    assert found["init_catalog_tables"] == "false"
    open_catalogs_of({}, environment)
    assert environment == {}


def test_pyicebergs_configuration_counts_as_a_whole(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(APPLICATION_CATALOGS_VARIABLE, "")
    other = conf("lake", type="rest", uri="http://other", token="t") | conf(
        "Lake", type="rest", uri="http://other"
    )
    open_catalogs_of(other)
    assert catalog_properties("lake") == of_sqlite(tmp_path)
    assert catalog_properties("Lake") == of_sqlite(tmp_path)
    assert known_catalogs() == Config().get_known_catalogs()


def test_the_error_says_why_the_application_does_not_help(application: dict[str, str]) -> None:
    open_catalogs_of(application)
    with pytest.raises(InvalidPlanInput) as raised:
        Catalogs().load_table("dirs.raw.plays", "spec.sources[0].table")
    assert str(raised.value).startswith(
        "spec.sources[0].table: catalog dirs is not configured:"
        " spark.sql.catalog.dirs.type is hadoop, which PyIceberg cannot open; "
    )


def test_a_store_that_is_not_aws_has_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AWS_REGION": "garage"}
    open_catalogs_of(conf("lake", uri="thrift://hms:9083") | MINIO, environment)
    assert catalog_properties("lake", environment)["s3.region"] == "garage"
    assert catalog_properties("lake", {**environment, "AWS_REGION": ""})["s3.region"] == "us-east-1"
