"""The history of two skewed sources, what the output made of it should be, and Backfills that fix
that output.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from rest import Manifest
from teams import APPLICATION, CATALOG_SECRET

from histories import query, sorted_rows
from skewed_plays import HOURLY, land_plays

_MORNING = {"start": "2024-03-01T03:00:00Z", "end": "2024-03-01T07:00:00Z"}


class Plays:
    """Tables with fifty impressions for each playback."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._truth = land_plays(catalog).hourly

    def summary(self, name: str) -> "Summary":
        """A table of its own that should be the summary of these plays and is wrong everywhere."""
        table = self._catalog.create_table(f"raw.{name.replace('-', '_')}", HOURLY)
        return Summary(name, table, self._truth)


class Summary:
    """An output of the application that is wrong in all hours, and is to be fixed in some."""

    def __init__(self, name: str, table: Table, truth: pa.Table):
        """``name`` is that of the Backfill that repairs it."""
        self.name = name
        self.window = _MORNING
        self._table = table
        self._truth = truth
        self._wrong = query(
            "SELECT window_start, title, plays + 1 AS plays, watched FROM truth", truth=truth
        )
        table.append(self._wrong.cast(HOURLY))

    @property
    def catalog(self) -> Catalog:
        """The catalog of the table."""
        return self._table.catalog

    @property
    def table(self) -> str:
        """The table's name in the catalog."""
        return ".".join(self._table.name())

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What readers of the table see."""
        return sorted_rows(self._table.refresh().scan().to_arrow())

    @property
    def wrong(self) -> list[tuple[Any, ...]]:
        """What they saw in the beginning."""
        return sorted_rows(self._wrong.cast(HOURLY))

    @property
    def fixed(self) -> list[tuple[Any, ...]]:
        """What they should see in the end: the window as it should be, the rest as it was."""
        start, end = self.window["start"], self.window["end"]
        within = f"window_start >= TIMESTAMPTZ '{start}' AND window_start < TIMESTAMPTZ '{end}'"
        inside = query(f"SELECT * FROM truth WHERE {within}", truth=self._truth)
        outside = query(f"SELECT * FROM wrong WHERE NOT ({within})", wrong=self._wrong)
        assert min(len(inside), len(outside)) > 10
        return sorted_rows(inside, outside)

    @property
    def branches(self) -> set[str]:
        """What refers to a snapshot of the table besides its own branch."""
        return set(self._table.refresh().metadata.refs) - {"main"}

    @property
    def stray_files(self) -> set[str]:
        """Data files that no snapshot of the table refers to."""
        table = self._table.refresh()
        used = set(table.inspect.all_files()["file_path"].to_pylist())
        return {str(file) for file in Path(table.location(), "data").rglob("*.parquet")} - used


def mending(summary: Summary, workspace: str, **spec: Any) -> Manifest:
    """The Backfill that repairs a summary; ``spec`` replaces fields, and leaves out those that are
    None.
    """
    sources = [
        {
            "name": topic,
            "table": f"lake.raw.{topic}",
            "timestampColumn": "ingested",
            "live": {"kafka": {"topic": topic}},
        }
        for topic in ("impressions", "playbacks")
    ]
    output = {
        "name": "summary",
        "table": f"lake.{summary.table}",
        "timestampColumn": "window_start",
    }
    fields: dict[str, Any] = {
        "applicationRef": {"name": APPLICATION},
        "window": {**summary.window, "warmUp": "1h", "drain": "1h"},
        "sources": sources,
        "ordering": {"policy": "WithinLateness", "allowedLateness": "5m"},
        "maxMisalignment": "90m",
        "outputs": [{**output, "publish": {"mode": "Replace", "approval": "Automatic"}}],
        "execution": "Streaming",  # batch jobs over so few rows are done before anything can happen
        "scaling": {"minExecutors": 1, "maxExecutors": 1},
        "planning": {"resources": {"memory": "512Mi"}},
        "workspace": workspace,
        "catalogs": [{"name": "lake", "secretRef": {"name": CATALOG_SECRET}}],
        "failurePolicy": {"backoff": "1s"},
    }
    return {
        "apiVersion": "backfill.dev/v1alpha1",
        "kind": "Backfill",
        "metadata": {"name": summary.name},
        "spec": {key: value for key, value in (fields | spec).items() if value is not None},
    }
