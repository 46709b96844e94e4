"""From a Secret's keys to what PyIceberg reads."""

from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from backfill.api.catalog_properties import catalog_variables, mounted_catalogs

PROPERTIES = {
    "uri": "https://catalog:8181/v1?a=b",
    "s3.access-key-id": "AKIA",
    "rest.sigv4-enabled": "true",
    "py-io-impl": "x.Y",
}


def test_pyiceberg_reads_the_properties_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in catalog_variables("my-lake", PROPERTIES).items():
        monkeypatch.setenv(name, value)
    assert Config().get_catalog_config("my-lake") == PROPERTIES


def test_mounted_secrets_give_the_same_without_the_kubelets_own_files(tmp_path: Path) -> None:
    catalog, data = tmp_path / "lake", tmp_path / "lake" / "..2026_11_21"
    data.mkdir(parents=True)
    (catalog / "..data").symlink_to(data.name)
    for name, value in PROPERTIES.items():
        (data / name).write_text(f"{value}\n")
        (catalog / name).symlink_to(f"..data/{name}")
    assert mounted_catalogs(tmp_path) == {"lake": PROPERTIES}


def test_without_mounted_catalogs_there_is_nothing(tmp_path: Path) -> None:
    assert mounted_catalogs(tmp_path / "not there") == {}
