"""The operator's own catalogs, beside those of a Backfill."""

from pathlib import Path

import pytest

from backfill.api.catalogs import catalog_variables
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
        "PYICEBERG_CATALOG__LAKE__URI": "https://lake",
        "PYICEBERG_CATALOG__LAKE__CREDENTIAL": "of the lake",
        "PYICEBERG_CATALOG__SEA__URI": "https://sea",
        "PYICEBERG_CATALOG__SEA__CREDENTIAL": "of the sea",
    }


@pytest.mark.parametrize("name", ["lake", "LAKE"])
def test_a_backfills_catalog_gets_nothing_of_the_operators_of_that_name(mounted: Path, name: str) -> None:
    variables = with_own_catalogs(catalog_variables(name, {"uri": "https://elsewhere"}), mounted)
    lake = {key: value for key, value in variables.items() if "LAKE" in key}
    assert lake == {"PYICEBERG_CATALOG__LAKE__URI": "https://elsewhere"}
    assert variables["PYICEBERG_CATALOG__SEA__CREDENTIAL"] == "of the sea"


def test_where_nothing_is_mounted_there_is_nothing_besides(tmp_path: Path) -> None:
    assert with_own_catalogs({"PYICEBERG_CATALOG__LAKE__URI": "u"}, tmp_path / "none") == {"PYICEBERG_CATALOG__LAKE__URI": "u"}
