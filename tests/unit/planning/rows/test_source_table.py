"""A source's table as the driver loads it: only what another attempt would not mend is bad
input.
"""

import socket

import pytest
from pyiceberg.utils.config import Config

from backfill.api.errors import BackfillError, InvalidPlanInput
from backfill.planning.plan import SourceInput
from backfill.planning.rows.pinned_table import load_source_table

SOURCE = SourceInput(
    name="clicks",
    table="sea.raw.clicks",
    table_uuid="",
    snapshot_id=1,
    schema_id=0,
    timestamp_column="at",
    timestamp_field_id=1,
    timestamp_type="timestamptz",
)


def configured(monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
    for key, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SEA__{key.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def test_a_catalog_that_does_not_answer_is_worth_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    configured(monkeypatch, type="rest", uri=f"http://127.0.0.1:{closed}")
    with pytest.raises(BackfillError, match="catalog sea cannot be opened") as raised:
        load_source_table(SOURCE)
    assert type(raised.value) is BackfillError, "the kind is all that is told of it"


def test_a_catalog_with_wrong_properties_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, type="rest")
    with pytest.raises(InvalidPlanInput, match="its property uri is missing"):
        load_source_table(SOURCE)
