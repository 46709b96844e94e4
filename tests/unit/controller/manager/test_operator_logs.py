"""What stands on a line of the operator's log."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from backfill.controller.manager.log_format import LogFormat, about, configure


@pytest.fixture
def root() -> Iterator[None]:
    """The loggers as they were."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def logger_to(form: LogFormat) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    configure(form, "info", stream)
    return logging.getLogger("backfill.test"), stream


@pytest.mark.usefixtures("root")
def test_every_line_of_a_turn_says_which_backfill_and_attempt_it_is_about() -> None:
    logger, stream = logger_to("json")
    with about("streaming", "july", "uid-1", 2):
        logger.info("attempt %d is starting", 2)
    logger.info("something else")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert {
        key: first[key] for key in ("namespace", "name", "uid", "attempt", "level", "message")
    } == {
        "namespace": "streaming",
        "name": "july",
        "uid": "uid-1",
        "attempt": 2,
        "level": "info",
        "message": "attempt 2 is starting",
    }
    assert "name" not in second


@pytest.mark.usefixtures("root")
def test_an_exception_is_part_of_its_one_line() -> None:
    logger, stream = logger_to("json")
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("a turn failed")
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert line["message"] == "a turn failed"
    assert "ValueError: broken" in line["error"]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("form", ["json", "text"])
def test_logins_and_tokens_are_left_out(form: LogFormat) -> None:
    logger, stream = logger_to(form)
    logger.info("postgresql://user:hunter2@db/lake")
    logger.info("Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.x.y")
    try:
        raise ConnectionError("mysql://user:hunter2@db refused")
    except ConnectionError:
        logger.exception("no catalog")
    assert "hunter2" not in stream.getvalue()
    assert "eyJ" not in stream.getvalue()
    assert "db/lake" in stream.getvalue()


@pytest.mark.usefixtures("root")
def test_text_begins_with_the_backfill() -> None:
    logger, stream = logger_to("text")
    with about("streaming", "july", attempt=1):
        logger.warning("it waits")
    assert stream.getvalue().rstrip().endswith("WARNING streaming/july#1: it waits")


@pytest.mark.usefixtures("root")
def test_a_job_names_its_backfill_itself() -> None:
    logger, stream = logger_to("json")
    logger.warning("job failed", extra={"backfill": "streaming/july"})
    line = json.loads(stream.getvalue())
    assert (line["namespace"], line["name"]) == ("streaming", "july")
