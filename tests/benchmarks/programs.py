"""The queries that are measured, over frames of the generated tables: the same code for a stream
that a backfill reads and for a hand-written batch job.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Read = Callable[[str], DataFrame]
"""A table's rows, by its name."""


def pass_through(read: Read) -> DataFrame:
    """All impressions with all their columns."""
    return read("impressions")


def join(read: Read) -> DataFrame:
    """Plays with what was shown to the user up to half an hour before."""
    shown = read("impressions").select(
        F.col("user_id").alias("shown_to"),
        F.col("item_id").alias("shown_item"),
        F.col("event_ts").alias("shown_at"),
    )
    played = read("playbacks").select("user_id", "item_id", "event_ts", "kafka_offset")
    matching = F.expr(
        "shown_to = user_id AND shown_item = item_id"
        " AND event_ts BETWEEN shown_at AND shown_at + INTERVAL 30 MINUTES"
    )
    return shown.join(played, matching).select(
        "user_id", "item_id", "shown_at", "event_ts", "kafka_offset"
    )


def windows(read: Read) -> DataFrame:
    """Impressions by user and ten minutes."""
    return (
        read("impressions")
        .groupBy(F.window("event_ts", "10 minutes").alias("window"), "user_id")
        .count()
        .select(F.col("window.start").alias("event_ts"), "user_id", "count")
    )


def sessions(read: Read) -> DataFrame:
    """Sessions of a user with a gap of half an hour."""
    return (
        read("impressions")
        .groupBy(F.session_window("event_ts", "30 minutes").alias("session"), "user_id")
        .count()
        .select(
            F.col("session.start").alias("event_ts"),
            F.col("session.end").alias("ended"),
            "user_id",
            "count",
        )
    )


PROGRAMS: dict[str, Callable[[Read], DataFrame]] = {
    "pass-through": pass_through,
    "join": join,
    "windows": windows,
    "sessions": sessions,
}
