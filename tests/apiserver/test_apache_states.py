"""Whatever Apache's Spark operator may say of a child, by its definition, is understood."""

import apache_definition

from backfill.controller.children.apache import Apache

WAITING = {"Submitted", "ScheduledToRestart", "DriverRequested"}
RUNNING = {
    "DriverStarted",
    "DriverReady",
    "InitializedBelowThresholdExecutors",
    "RunningHealthy",
    "RunningWithPartialCapacity",
    "RunningWithBelowThresholdExecutors",
}
OVER = {
    "DriverStartTimedOut",
    "DriverReadyTimedOut",
    "ExecutorsStartTimedOut",
    "Succeeded",
    "Failed",
    "SchedulingFailure",
    "DriverEvicted",
    "ResourceReleased",
    "TerminatedWithoutReleaseResources",
}


def test_every_state_of_the_definition_is_known() -> None:
    expected = (
        dict.fromkeys(WAITING, "Waiting")
        | dict.fromkeys(RUNNING, "Running")
        | dict.fromkeys(OVER, "Over")
    )
    seen = {}
    for summary in apache_definition.states():
        child = {"metadata": {}, "status": {"currentState": {"currentStateSummary": summary}}}
        seen[summary] = Apache().state(child).phase
    assert seen == expected
