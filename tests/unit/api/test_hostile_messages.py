"""Credentials in the messages of libraries, in each form in which one could repeat them."""

import base64
import io
import json
import logging
import time
from urllib.parse import quote, quote_plus

import pytest
from pydantic import TypeAdapter, ValidationError

from backfill.api.base import Message, printable
from backfill.api.errors import BackfillError, InvalidPlanInput, Problem
from backfill.api.field_types import TableName
from backfill.api.redaction import RedactedText, redact, redactor
from backfill.api.status import Comparison
from backfill.controller.manager.log_format import JsonFormatter, TextFormatter
from backfill.protocol.explanation import Explanation
from backfill.protocol.survey_result import Survey

pytestmark = pytest.mark.hostile

SECRET = "hunter2&co/ü+x"
PROPERTIES = {
    "type": "sql",
    "uri": f"postgresql://me:{quote(SECRET, safe='')}@db/lake?sslpassword=swordfish",
    "credential": f"client-id:{SECRET}",
    "adls.connection-string": (
        "AccountName=lake;AccountKey=c2VjcmV0LWtleQ==;EndpointSuffix=core.windows.net"
    ),
    "s3.anonymous": "false",
}
ENVIRONMENT = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "DATABASE_URL": "postgresql://op:of-the-operator@db/x",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/token",
    "AWS_REGION": "eu-central-1",
}
HIDDEN = redactor({"lake": PROPERTIES}, ENVIRONMENT)


def login(name: str) -> str:
    return base64.b64encode(f"{name}:{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"client-id:{SECRET}",
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        json.dumps(SECRET),
        json.dumps({"body": json.dumps({"p": SECRET}, ensure_ascii=False)}, ensure_ascii=False),
        repr(SECRET),
        SECRET.encode().hex(),
        login("a"),
        login("an"),
        login("any"),
        login("some"),
        base64.urlsafe_b64encode(f"some:{SECRET}".encode()).decode(),
    ],
)
def test_a_secret_is_hidden_in_each_form(text: str) -> None:
    said = HIDDEN.text(f"refused: {text} is no login")
    assert said.startswith("refused: ")
    assert said.endswith(" is no login")
    for part in ("hunter2", "aHVudGVy", quote(SECRET, safe=""), SECRET.encode().hex()):
        assert part not in said
    assert len(said.replace("***", "")) < len("refused:  is no login") + 30, said


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("cannot connect with sslpassword=swordfish", "swordfish"),
        ("the key c2VjcmV0LWtleQ== is wrong", "c2VjcmV0LWtleQ=="),
        ("signed with wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ("no server at op:of-the-operator@db", "of-the-operator"),
    ],
)
def test_parts_of_properties_and_of_the_environment_are_hidden(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in HIDDEN.text(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("GET https://x/y?a=1&password=abc&b=2", "GET https://x/y?a=1&password=***&b=2"),
        ("https://x/y?X-Amz-Signature=0123abc&z=1", "https://x/y?X-Amz-Signature=***&z=1"),
        ('{"client_secret": "abc", "scope": "all"}', '{"client_secret": "***", "scope": "all"}'),
        ("postgresql://me:abc@db/lake", "postgresql://***@db/lake"),
        ("Authorization: Bearer abcdefgh123", "Authorization: Bearer ***"),
    ],
)
def test_what_looks_like_a_login_is_hidden_wherever_it_comes_from(text: str, left: str) -> None:
    assert redact(text) == left
    assert redact(left) == left


@pytest.mark.parametrize(
    "text",
    [
        (
            "spec.catalogs[0].secretRef: there is no Secret lake-catalog in namespace team-a;"
            " create it"
        ),
        "its property s3.secret-access-key is missing; correct it in eu-central-1",
        "s3.anonymous is false, and the token file is /var/run/secrets/token",
        "catalog lake cannot be opened: its property credential needs a value",
    ],
)
def test_messages_that_help_stay_as_they_are(text: str) -> None:
    assert HIDDEN.text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        ",token" * 50_000,
        f"({'token' * 50_000}",
        f'"{"token" * 50_000}',
        f"?{'sig' * 80_000}=",
        '"token"' + " " * 200_000,
        "://" * 80_000,
    ],
    ids=lambda text: text[:8],
)
def test_no_text_keeps_the_search_for_logins_busy(text: str) -> None:
    """It holds up every other thread, and names of columns are as long as their owner likes."""
    began = time.thread_time()
    redact(text)
    assert time.thread_time() - began < 1


def test_a_secret_of_many_lines_does_not_keep_the_search_busy() -> None:
    lines = [f"{number * 7919:08x}" for number in range(1, 1001)]
    began = time.thread_time()
    hidden = redactor({"lake": {"token": "\n".join(lines)}}, {})
    assert hidden.text("0" * 32_000 + lines[-1].upper()) == "0" * 32_000 + "***"
    assert time.thread_time() - began < 1


def test_secrets_that_overlap_are_hidden_whole() -> None:
    hidden = redactor(
        {"lake": {"a": "first-secret", "b": "secret-second", "c": "İstanbul-key"}}, {}
    )
    assert (
        hidden.text("x first-secret-second y secret-secondfirst-secret İİSTANBUL-KEY")
        == "x *** y ****** İ***"
    )


def test_what_would_steer_a_terminal_is_shown_as_an_escape() -> None:
    logger, stream = logging.getLogger("backfill.test"), io.StringIO()
    said = "no column \x1b[2Jx\x9b\u202e\r\n2026-01-01T00:00:00.000Z INFO team-b/july: Published"
    for form in ("text", "json"):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(TextFormatter() if form == "text" else JsonFormatter())
        handler.handle(logger.makeRecord(logger.name, logging.WARNING, "", 0, "%s", (said,), None))
    text, forged, line, *rest = stream.getvalue().splitlines()
    assert not rest
    assert text.endswith("no column \\x1b[2Jx\\x9b\\u202e\\r")
    assert forged.startswith("    2026"), "a line of the log begins with its own time"
    assert json.loads(line)["message"] == printable(said)
    condition = TypeAdapter(Message).validate_python(said)
    assert (
        condition
        == "no column \\x1b[2Jx\\x9b\\u202e\\r\n2026-01-01T00:00:00.000Z INFO team-b/july:"
        " Published"
    )
    assert Comparison(settings="", report="s3://lake/\x1b[2J").report == "s3://lake/\\x1b[2J"
    with pytest.raises(ValidationError):
        TypeAdapter(TableName).validate_python("lake.raw.\x1b[2J")


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_a_record_of_the_log_has_an_end(form: logging.Formatter) -> None:
    record = logging.getLogger("backfill.test").makeRecord(
        "n", logging.WARNING, "", 0, "%s", ("\x1b token=abc " * 500_000,), None
    )
    began = time.thread_time()
    assert len(form.format(record)) < 70_000
    assert time.thread_time() - began < 1


def test_errors_and_what_is_printed_are_without_them() -> None:
    error = HIDDEN.error(
        InvalidPlanInput([Problem("spec.x", f"said {SECRET}", f"not {SECRET}", may_pass=True)])
    )
    assert isinstance(error, InvalidPlanInput)
    assert (error.problems[0].message, error.problems[0].fix, error.may_pass) == (
        "said ***",
        "not ***",
        True,
    )
    assert str(HIDDEN.error(BackfillError(f"x {SECRET}"))) == "x ***"
    printed = io.StringIO()
    RedactedText(printed, HIDDEN).write(f"Traceback {SECRET}\n")
    assert printed.getvalue() == "Traceback ***\n"


def test_half_of_a_character_is_shown_and_keeps_no_report_from_being_written() -> None:
    """A program may repeat one from JSON in its error."""
    half = json.loads('"no user \\ud83d"')
    message = TypeAdapter(Message).validate_python(f"{half}, \U0001f600")
    assert message == "no user \\ud83d, \U0001f600"
    for answer in (Survey(message=half), Explanation(message=half)):
        written = answer.model_dump_json()
        assert type(answer).model_validate_json(written).message == "no user \\ud83d"
