"""The reference lists every option of the operator and every series it exports, and no others."""

import re

import pytest
from prometheus_client import generate_latest

from backfill.controller.manager.metrics import Metrics
from backfill.controller.manager.options import parse
from repository import ROOT

REFERENCE = ROOT / "docs" / "reference"


def first_column(page: str, heading: str) -> str:
    """The first column of the table with this heading."""
    table = (REFERENCE / page).read_text().split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return "\n".join(row.split("|")[1] for row in table.splitlines()[2:])


def test_every_option_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"], {})
    options = set(re.findall(r"^ +(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert (
        set(re.findall(r"`(--[a-z-]+)`", first_column("operator.md", "option"))) == options != set()
    )


def test_every_series_is_listed() -> None:
    families = re.findall(
        r"^# TYPE backfill_(\w+)", generate_latest(Metrics(list).registry).decode(), re.MULTILINE
    )
    series = {family for family in families if not family.endswith("_created")}
    assert (
        set(re.findall(r"`(\w+)`", first_column("metrics.md", "series (`backfill_…`)")))
        == series
        != set()
    )
