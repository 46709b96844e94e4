"""Waiting between tries, and telling of trouble once."""

import logging

import pytest

from backfill.runtime.agent.kubernetes_channel import Retries


@pytest.fixture
def retries() -> Retries:
    return Retries("asking", first_seconds=1.0, last_seconds=4.0)


def test_the_wait_doubles_up_to_the_last_and_begins_anew_after_a_success(retries: Retries) -> None:
    waits = [retries.failed(OSError("no")) for _ in range(4)]
    for wait, most in zip(waits, (1.0, 2.0, 4.0, 4.0), strict=True):
        assert most / 2 <= wait <= most
    retries.worked()
    assert retries.failed(OSError("no")) <= 1.0


@pytest.mark.parametrize(("asked", "waited"), [(10.0, 10.0), (3600.0, 30.0)])
def test_what_the_server_asks_for_is_respected_within_reason(
    retries: Retries, asked: float, waited: float
) -> None:
    assert retries.failed(OSError("no"), asked) == waited


def test_the_log_is_told_of_the_first_failure_and_of_the_success_after_it(
    retries: Retries, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    retries.worked()
    for _ in range(3):
        retries.failed(OSError("no route"))
    retries.worked()
    assert [record.message for record in caplog.records] == [
        "asking failed; retrying: no route",
        "asking works again after 3 failures",
    ]
