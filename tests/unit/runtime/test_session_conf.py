"""Properties of production whose classes are not on this machine."""

import pytest

from backfill.runtime.session_conf import SUBMITTED, session_options, with_known_classes
from backfill.runtime.settings import RuntimeSettings
from least_settings import LEAST_SETTINGS

CATALOG = "spark.sql.catalog.spark_catalog"
DELTA = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
PRODUCTION = {
    CATALOG: DELTA,
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
    "spark.sql.defaultCatalog": "lake",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension, com.example.Ours",
    "spark.extraListeners": "com.example.Lineage",
    "spark.shuffle.manager": "sort",
    "spark.example.handler": "com.example.Missing",
}


def _settings(overrides: dict[str, str]) -> RuntimeSettings:
    return RuntimeSettings.model_validate(LEAST_SETTINGS | {"sparkConf": overrides})


def _has(name: str) -> bool:
    return name == "com.example.Ours"


def test_classes_that_only_production_has_do_not_keep_a_program_from_running_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SUBMITTED, raising=False)
    assert with_known_classes(PRODUCTION, _settings({}), _has) == {
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.extensions": "com.example.Ours",
        "spark.shuffle.manager": "sort",
        "spark.example.handler": "com.example.Missing",
    }


def test_the_default_catalog_is_one_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or Spark looks for it whatever a program reads."""
    monkeypatch.delenv(SUBMITTED, raising=False)
    here = {"spark.sql.catalog.ours": "com.example.Ours", "spark.sql.defaultCatalog": "ours"}
    assert with_known_classes(here, _settings({}), _has) == here
    default, missing = {"spark.sql.defaultCatalog": "lake"}, "org.apache.iceberg.spark.SparkCatalog"
    of_application = _settings({}).model_copy(
        update={"spark_defaults": {"spark.sql.catalog.lake": missing}}
    )
    assert with_known_classes(default, of_application, _has) == {}
    assert with_known_classes(default, _settings(default), _has) == default


def test_a_class_that_an_override_asks_for_is_not_left_out_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SUBMITTED, raising=False)
    assert with_known_classes({CATALOG: DELTA}, _settings({CATALOG: DELTA}), _has) == {
        CATALOG: DELTA
    }


def test_a_cluster_runs_with_the_classes_of_its_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "1")
    assert with_known_classes(PRODUCTION, _settings({}), _has) == PRODUCTION


def test_sessions_that_are_made_of_the_programs_one_have_the_overrides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SUBMITTED, "1")
    options = {CATALOG: DELTA, "spark.sql.ansi.enabled": "false"}
    assert session_options(options, _settings({CATALOG: "builtin"})) == {
        CATALOG: "builtin",
        "spark.sql.ansi.enabled": "false",
    }
