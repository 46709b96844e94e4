"""Whatever goes wrong in whatever order: a Backfill keeps its promises, and comes to its end."""

from simulation import replay


def test_a_quiet_history_publishes_every_step_once_and_leaves_nothing_behind() -> None:
    result = replay({})
    assert result.failure == ""
    assert result.outcome == "Finished"
