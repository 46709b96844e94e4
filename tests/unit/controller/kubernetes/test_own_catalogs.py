"""The operator's own catalogs, beside those of a Backfill."""

from pathlib import Path

import pytest

from backfill.api.catalogs import GivenCatalog
from backfill.controller.kubernetes.credentials import with_own_catalogs


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    for catalog, password in (("lake", "of the lake"), ("sea", "of the sea")):
        (tmp_path / catalog).mkdir()
        (tmp_path / catalog / "uri").write_text(f"https://{catalog}\n")
        (tmp_path / catalog / "credential").write_text(password)
    return tmp_path


def test_a_backfill_without_secrets_has_the_operators_catalogs(mounted: Path) -> None:
    assert with_own_catalogs({}, mounted) == {
        "lake": GivenCatalog({"uri": "https://lake", "credential": "of the lake"}, own=True),
        "sea": GivenCatalog({"uri": "https://sea", "credential": "of the sea"}, own=True),
    }


@pytest.mark.parametrize("name", ["lake", "LAKE", "la\N{KELVIN SIGN}e"])
def test_a_backfills_catalog_gets_nothing_of_the_operators_of_that_name(mounted: Path, name: str) -> None:
    theirs = GivenCatalog({"uri": "https://elsewhere"})
    catalogs = with_own_catalogs({name: theirs}, mounted)
    assert set(catalogs) == {name, "sea"}
    assert catalogs[name] == theirs
    assert catalogs["sea"].properties["credential"] == "of the sea"


def test_where_nothing_is_mounted_there_is_nothing_besides(tmp_path: Path) -> None:
    assert with_own_catalogs({"lake": GivenCatalog({"uri": "u"})}, tmp_path / "none") == {"lake": GivenCatalog({"uri": "u"})}
