"""The configuration of sources by name, as a backfill reads it."""

from backfill.runtime.named_sources import _live_candidate


def test_of_several_live_candidates_the_selected_one_counts() -> None:
    sources = {
        "clicks": {"type": "dynamic", "candidates": ["table", "europe", "america"]},
        "table": {"type": "iceberg"},
        "europe": {"type": "kafka", "topic": "clicks-eu"},
        "america": {"type": "kafka", "topic": "clicks-us"},
    }
    assert _live_candidate(sources, "clicks") == sources["europe"]
    chosen = sources["clicks"] | {"selected": "america"}
    assert _live_candidate(sources | {"clicks": chosen}, "clicks") == sources["america"]
    history = sources["clicks"] | {"selected": "table"}
    assert _live_candidate(sources | {"clicks": history}, "clicks") == sources["europe"]
