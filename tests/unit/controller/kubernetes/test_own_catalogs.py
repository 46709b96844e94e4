"""The operator's own catalogs, beside those of a Backfill."""

from pathlib import Path

import pytest

from backfill.api.catalogs import GivenCatalog
from backfill.api.spec import BackfillSpec
from backfill.controller.cluster.credentials import with_own_catalogs
from table_jobs import clicks_spec


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    for catalog, password in (("lake", "of the lake"), ("sea", "of the sea")):
        (tmp_path / catalog).mkdir()
        (tmp_path / catalog / "uri").write_text(f"https://{catalog}\n")
        (tmp_path / catalog / "credential").write_text(password)
    return tmp_path


def spec(*catalogs: str) -> BackfillSpec:
    return clicks_spec(
        sources=[{"name": f"s-{n}", "table": f"{name}.raw.clicks", "timestampColumn": "at"} for n, name in enumerate(catalogs)]
    )


def test_a_backfill_without_secrets_has_those_of_the_operators_catalogs_that_it_uses(mounted: Path) -> None:
    lake = GivenCatalog({"uri": "https://lake", "credential": "of the lake"}, own=True)
    assert with_own_catalogs(spec("lake"), {}, mounted) == {"lake": lake}
    assert with_own_catalogs(spec("lake", "elsewhere"), {}, mounted) == {"lake": lake, "elsewhere": GivenCatalog({}, own=True)}


@pytest.mark.parametrize("name", ["lake", "LAKE", "la\N{KELVIN SIGN}e"])
def test_a_backfills_catalog_gets_nothing_of_the_operators_of_that_name(mounted: Path, name: str) -> None:
    theirs = GivenCatalog({"uri": "https://elsewhere"})
    catalogs = with_own_catalogs(spec("lake", "sea"), {name: theirs}, mounted)
    assert set(catalogs) == {name, "sea"}
    assert catalogs[name] == theirs
    assert catalogs["sea"].properties["credential"] == "of the sea"


def test_where_nothing_is_mounted_there_is_nothing_besides(tmp_path: Path) -> None:
    lake = {"lake": GivenCatalog({"uri": "u"})}
    assert with_own_catalogs(spec("lake"), lake, tmp_path / "none") == lake
