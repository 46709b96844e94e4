"""Two sources with gaps, fifty impressions for each playback, and what is played by the hour."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from histories import MINUTE_US, UTC_TIME, events, land, query

HOURLY = pa.schema(
    [
        ("window_start", UTC_TIME),
        ("title", pa.int64()),
        ("plays", pa.int64()),
        ("watched", pa.int64()),
    ]
)
_TRUTH = """
    SELECT date_trunc('hour', played) AS window_start, i.title, count(*) AS plays, sum(watched)::BIGINT AS watched
    FROM impressions i JOIN playbacks p ON i.title = p.title AND i.viewer = p.viewer
        AND shown <= played AND shown > played - INTERVAL 30 MINUTE
    GROUP BY ALL
"""


@dataclass(frozen=True)
class LandedPlays:
    """All rows of both tables."""

    impressions: pa.Table
    playbacks: pa.Table

    @property
    def hourly(self) -> pa.Table:
        """Plays by hour and title, as DuckDB finds them."""
        return query(_TRUTH, impressions=self.impressions, playbacks=self.playbacks)


def land_plays(catalog: Catalog) -> LandedPlays:
    """Makes and fills the tables ``raw.impressions`` and ``raw.playbacks``."""
    impressions, shown = events(20_000, "shown", {8}, seed=1)
    table = catalog.create_table("raw.impressions", impressions.schema)
    land(table, impressions, shown, files=30, seed=1, straggle_us=4 * MINUTE_US)
    playbacks, played = events(400, "played", {8, 9}, seed=2)
    playbacks = playbacks.append_column("watched", pa.array(np.arange(len(playbacks))))
    table = catalog.create_table("raw.playbacks", playbacks.schema)
    land(table, playbacks, played, files=5, seed=2)
    return LandedPlays(impressions, playbacks)
