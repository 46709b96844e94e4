"""Three decisions are enough: which application, which window, and what becomes of the result."""

import json
from pathlib import Path

from production import ended
from pyiceberg.catalog import Catalog
from test_proposed_backfill import demo

from backfill.api.backfill import Backfill

WINDOW = "2024-03-01T04:00:00Z/2024-03-01T08:00:00Z"


def test_the_demo_runs_with_a_window_and_a_publish_mode_alone(
    lake: Catalog, tmp_path: Path
) -> None:
    production = demo(lake, tmp_path)
    arguments = ("application.yaml", "--window", WINDOW, "--publish", "Append")
    end = ended(production.start("run", *arguments, "--output", "json"))
    assert end.status == 0, end.err
    rows = lake.load_table("ops.departures").scan().to_arrow()
    inside = [at.hour for at in rows["scheduled"].to_pylist()]
    assert {*inside} == {4, 5, 6, 7}
    assert rows.num_rows == 4 * 180 * 180  # every flight of an hour with the weather of that hour

    stored = Backfill.model_validate_json(
        (tmp_path / ".backfill/default/departures-2024-03-01/backfill.json").read_text()
    )
    assert stored.status.resolved is not None
    reasons = {each.field: each.why for each in stored.status.resolved.origins}
    assert "up to 1h earlier" in reasons["spec.window.warmUp"]

    again = ended(production.start("run", *arguments, "--output", "json"))
    assert again.status == 0, again.err
    assert json.loads(again.out.splitlines()[-1])["name"] == "departures-2024-03-01"
    assert lake.load_table("ops.departures").scan().to_arrow().num_rows == rows.num_rows
    other = ended(production.start("run", *arguments[:-1], "Replace"))
    assert other.status == 2
    assert 'spec.outputs[0].publish.mode: was "Append", is "Replace"' in other.err
