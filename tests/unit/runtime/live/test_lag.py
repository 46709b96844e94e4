"""How far behind Kafka a query is, by its progress events."""

from backfill.runtime.live.kafka_lag import Lag, offsets_of

SECOND = 1_000_000
A, B = ("events", "0"), ("events", "1")


def test_the_lag_is_unknown_until_what_kafka_had_at_the_start_is_committed() -> None:
    lag = Lag()
    assert (lag.seconds(9 * SECOND), lag.behind) == (None, None)
    lag.committed(0, 9, {A: 10, B: 5}, {A: 100, B: 5})
    assert (lag.seconds(9 * SECOND), lag.behind) == (None, 90)
    lag.committed(10 * SECOND, 9, {A: 99, B: 5}, {A: 120, B: 7})
    assert (lag.seconds(12 * SECOND), lag.behind) == (None, 23)
    lag.committed(20 * SECOND, 9, {A: 110, B: 6}, {A: 130, B: 7})
    assert (lag.seconds(30 * SECOND), lag.behind) == (30.0, 21)


def test_a_query_that_reads_everything_lags_as_long_as_its_last_micro_batch_is_ago() -> None:
    lag = Lag()
    lag.committed(4 * SECOND, 9, {A: 100}, {A: 100})
    assert (lag.seconds(10 * SECOND), lag.behind) == (6.0, 0)
    lag.idle(9 * SECOND)
    assert (lag.seconds(10 * SECOND), lag.behind) == (1.0, 0)


def test_a_query_that_waits_for_more_records_has_not_caught_up() -> None:
    lag = Lag()
    lag.committed(4 * SECOND, 9, {A: 90}, {A: 100})
    lag.idle(9 * SECOND)
    assert (lag.seconds(10 * SECOND), lag.behind) == (None, 10)
    lag.committed(12 * SECOND, 9, {A: 100}, {A: 100})
    lag.idle(20 * SECOND)
    assert (lag.seconds(21 * SECOND), lag.behind) == (1.0, 0)


def test_what_two_micro_batches_do_not_read_are_no_records() -> None:
    lag = Lag()
    lag.committed(4 * SECOND, 5, {A: 90}, {A: 91})
    lag.committed(9 * SECOND, 0, {A: 90}, {A: 91})
    assert (lag.seconds(10 * SECOND), lag.behind) == (None, 1)
    lag.committed(14 * SECOND, 0, {A: 90}, {A: 91})
    assert (lag.seconds(15 * SECOND), lag.behind) == (1.0, 0)
    lag.committed(19 * SECOND, 4, {A: 95}, {A: 96})
    assert (lag.seconds(20 * SECOND), lag.behind) == (6.0, 1)
    lag.committed(24 * SECOND, 0, {A: 95}, {A: 99})
    assert (lag.seconds(25 * SECOND), lag.behind) == (11.0, 4)


def test_a_micro_batch_of_which_it_is_not_known_what_kafka_had_does_not_count() -> None:
    lag = Lag()
    lag.committed(0, 9, {A: 10}, {A: 100})
    lag.committed(4 * SECOND, 9, {A: 20}, {})
    assert (lag.seconds(9 * SECOND), lag.behind) == (None, 90)


def test_a_query_that_is_far_behind_for_long_keeps_a_bounded_number_of_observations() -> None:
    lag = Lag()
    for number in range(3_000):
        lag.committed(number * SECOND, 9, {A: number}, {A: 100_000 + number})
    assert len(lag._seen) <= 1_000
    lag.committed(3_000 * SECOND, 9, {A: 100_010}, {A: 110_000})
    known = lag.seconds(3_000 * SECOND)
    assert known is not None
    assert 2_990 <= known <= 3_000, "never less than it is"


def test_only_offsets_of_kafka_count() -> None:
    assert offsets_of('{"events":{"0":3,"1":4}}') == {A: 3, B: 4}
    for other in (None, "5", '{"step": 3}', "[1]", "file offset"):
        assert offsets_of(other) == {}
