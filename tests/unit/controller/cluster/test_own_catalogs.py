"""The operator's own catalogs, beside those of a Backfill."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from backfill.api.backfill import Backfill, ObjectMeta
from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BadInput
from backfill.api.output import Output
from backfill.api.spec import BackfillSpec
from backfill.controller.cluster.credentials import catalog_credentials, with_own_catalogs
from backfill.kube.client import Cluster
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
        sources=[
            {"name": f"s-{n}", "table": f"{name}.raw.clicks", "timestampColumn": "at"}
            for n, name in enumerate(catalogs)
        ]
    )


def test_a_backfill_without_secrets_has_those_of_the_operators_catalogs_that_it_uses(
    mounted: Path,
) -> None:
    lake = GivenCatalog({"uri": "https://lake", "credential": "of the lake"}, own=True)
    assert with_own_catalogs(spec("lake"), {}, mounted) == {"lake": lake}
    assert with_own_catalogs(spec("lake", "elsewhere"), {}, mounted) == {
        "lake": lake,
        "elsewhere": GivenCatalog({}, own=True),
    }


def test_a_catalog_that_only_a_reference_is_in_is_given_as_well(mounted: Path) -> None:
    validate = {"against": "Reference", "reference": {"table": "sea.audit.clicks"}}
    output = {"name": "o", "table": "lake.ops.o", "timestampColumn": "at", "validate": validate}
    compares = spec("lake").model_copy(update={"outputs": (Output.model_validate(output),)})
    catalogs = with_own_catalogs(compares, {}, mounted)
    assert set(catalogs) == {"lake", "sea"}
    assert catalogs["sea"].properties["credential"] == "of the sea"


@pytest.mark.parametrize("name", ["lake", "LAKE", "la\N{KELVIN SIGN}e"])
def test_a_backfills_catalog_gets_nothing_of_the_operators_of_that_name(
    mounted: Path, name: str
) -> None:
    theirs = GivenCatalog({"uri": "https://elsewhere"})
    catalogs = with_own_catalogs(spec("lake", "sea"), {name: theirs}, mounted)
    assert set(catalogs) == {name, "sea"}
    assert catalogs[name] == theirs
    assert catalogs["sea"].properties["credential"] == "of the sea"


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("properties", "wrong"),
    [
        ({"token": "x" * 2**20}, "has more than 64 KiB"),
        ({f"header.x{number}": "y" * 1000 for number in range(70)}, "has more than 64 KiB"),
        ({"token": "abcde\n" * 5000, "uri": "https://lake"}, "has more than 1,000 lines"),
        ({f"a{number}": "b" for number in range(1001)}, "has more than 1,000 lines"),
    ],
    ids=["a long value", "much in all", "many lines", "many keys"],
)
def test_a_secret_larger_than_any_catalog_needs_is_refused(
    properties: dict[str, str], wrong: str
) -> None:
    """What is said of a job is searched for all of it, in the operator's own process."""
    with pytest.raises(BadInput) as raised:
        catalog_credentials(secrets(properties), with_secret())
    assert str(raised.value).startswith(
        "spec.catalogs[0].secretRef: Secret lake-catalog in namespace default " + wrong
    )


def test_a_secret_as_people_have_them_is_read() -> None:
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *["x" * 64] * 50, "-----END PRIVATE KEY-----"])
    properties = {"uri": "https://lake", "token": key}
    assert catalog_credentials(secrets(properties), with_secret()) == {
        "lake": GivenCatalog(properties)
    }


def secrets(properties: dict[str, str]) -> Cluster:
    secret = {
        "data": {
            key: base64.b64encode(value.encode()).decode() for key, value in properties.items()
        }
    }
    return cast("Cluster", SimpleNamespace(get=lambda *_: secret))


def with_secret() -> Backfill:
    catalogs = [{"name": "lake", "secretRef": {"name": "lake-catalog"}}]
    return Backfill(metadata=ObjectMeta(name="july"), spec=clicks_spec(catalogs=catalogs))


def test_where_nothing_is_mounted_there_is_nothing_besides(tmp_path: Path) -> None:
    lake = {"lake": GivenCatalog({"uri": "u"})}
    assert with_own_catalogs(spec("lake"), lake, tmp_path / "none") == lake
