"""Durations, times and byte sizes: parsed strictly, and formatted as they are written.

Within the project a time is an ``int`` of microseconds since 1970-01-01 UTC and a length of time an
``int`` of microseconds, named ``*_us``. The types here are only used in resources.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)
_DURATION_UNITS = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("m", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
    ("ms", timedelta(milliseconds=1)),
)
TIME_PATTERN: Final = (
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:[Zz]|[+-]\d{2}:\d{2})"
)
_TIME = re.compile(TIME_PATTERN, re.ASCII)
_DATE_PATTERN: Final = r"\d{4}-\d{2}-\d{2}"
_DATE = re.compile(_DATE_PATTERN, re.ASCII)
MOMENT_FORMATS: Final = ({"format": "date-time"}, {"format": "date"})
"""An API server that sees another form does not try to compute with it."""
MOMENT_PATTERN: Final = f"(?:{TIME_PATTERN}|{_DATE_PATTERN})"
_BYTES = re.compile(r"(\d+)(Ki|Mi|Gi|Ti|k|M|G|T)?", re.ASCII)
_BYTE_UNITS = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    None: 1,
}
_SPOKEN_DURATION = re.compile(
    r"(?:pt?)?(?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?"
    r"|d|days?|w|weeks?)(?:t|,?\s*(?:and\s+)?))+",
    re.ASCII,
)
_SPOKEN_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|mil|[smhdw])", re.ASCII)
_SPOKEN_UNITS = {**dict(_DURATION_UNITS), "mil": timedelta(milliseconds=1), "w": timedelta(weeks=1)}
_MOST_SPOKEN = 40
"""Characters of a value that is read for what it may mean."""
_LONGEST = timedelta(days=3660)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(value: object) -> timedelta:
    """Reads a duration such as ``15m``, ``2h`` or ``1d12h``.

    Units go from large to small. A sign or a fraction is not allowed.

    Raises:
        ValueError: it has another form, or is longer than ten years.
    """
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        meant = _duration_meant(value) or "30s, 15m, 2h, 1d or 1h30m"
        raise ValueError(f"is not a duration; write it as {meant}")
    parts = zip(_DURATION_UNITS, match.groups(), strict=True)
    try:
        total = sum((unit * int(count) for (_, unit), count in parts if count), timedelta())
    except OverflowError:
        total = timedelta.max
    if total > _LONGEST:
        raise ValueError("is longer than ten years; use a shorter duration")
    return total


def _duration_meant(value: object) -> str:
    """How a length of time that has another form is written, as far as it is clear; else empty."""
    text = "" if isinstance(value, bool) else str(value).strip()
    if len(text) > _MOST_SPOKEN:
        return ""
    if re.fullmatch(r"\d+", text, re.ASCII):
        return f"{text}s, if it is in seconds" if int(text) else "0s"
    if not _SPOKEN_DURATION.fullmatch(text.lower()) or (
        "M" in text and not re.fullmatch("PT?[^M]*|[^T]*T.*", text)
    ):
        return ""  # M is a month in the part of dates, and may be one elsewhere
    parts = _SPOKEN_PART.findall(text.lower())
    try:
        total = sum((float(number) * _SPOKEN_UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError:
        return ""
    return format_duration(total) if total % timedelta(milliseconds=1) == timedelta() else ""


def format_duration(value: timedelta) -> str:
    """The shortest form of a duration: ``1h30m``, ``0s``."""
    parts = []
    for name, unit in _DURATION_UNITS:
        count, value = divmod(value, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"


def parse_time(value: object) -> datetime:
    """A time in RFC 3339 with its offset from UTC, to the microsecond.

    Raises:
        ValueError: it has another form, lacks its offset, or does not exist in the calendar.
    """
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        raise ValueError(f"is not a time in RFC 3339; write it as {_time_meant(value)}")
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"is not a valid date ({error}); write it as 2021-07-11T00:00:00Z"
        ) from None


def _time_meant(value: object) -> str:
    """How a time that has another form is written, as far as it is clear; else an example."""
    try:
        meant = datetime.fromisoformat(str(value).strip().upper().replace("/", "-"))
        if meant.tzinfo is None:
            return f"{format_time(meant.replace(tzinfo=UTC))}, if it is in UTC"
        return format_time(meant)
    except (ValueError, OverflowError):
        return "2021-07-11T00:00:00Z"


def parse_moment(value: object) -> datetime:
    """A time in RFC 3339, or a date, which is midnight UTC.

    Raises:
        ValueError: it has another form, lacks its offset, or does not exist in the calendar.
    """
    if isinstance(value, str) and _DATE.fullmatch(value):
        return parse_time(f"{value}T00:00:00Z")
    try:
        return parse_time(value)
    except ValueError as error:
        raise ValueError(str(error).replace("not a time", "neither a date nor a time")) from None


def format_time(value: datetime) -> str:
    """A time in RFC 3339 and UTC, with a fraction only if it is not zero."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_bytes(value: object) -> int:
    """A size such as ``256Mi`` or ``1G``, in bytes.

    Raises:
        ValueError: it has another form, or is zero.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _BYTES.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        raise ValueError("is not a size; write it as 64Mi, 1Gi or a number of bytes")
    return int(match[1]) * _BYTE_UNITS[match[2]]


def to_us(value: datetime | timedelta) -> int:
    """A time in microseconds since the epoch, or a length of time in microseconds. Exact."""
    return ((value - _EPOCH) if isinstance(value, datetime) else value) // _MICROSECOND


def from_us(value: int) -> datetime:
    """The time of microseconds since the epoch, in UTC."""
    return _EPOCH + value * _MICROSECOND


DURATION_IN_MILLISECONDS = (
    "self.findAll('[0-9]+[a-z]+').map(part, int(part.find('[0-9]+')) * (part.endsWith('d') ?"
    " 86400000 : part.endsWith('h') ? 3600000 : part.endsWith('ms') ? 1 : part.endsWith('m') ?"
    " 60000 : 1000)).sum()"
)
"""CEL: the length of a duration in milliseconds."""

Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^(\d{1,4}d)?(\d{1,5}h)?(\d{1,7}m)?(\d{1,9}s)?(\d{1,12}ms)?$",
            "minLength": 2,
            "maxLength": 32,
            "examples": ["30s", "15m", "1h30m", "7d"],
            "x-kubernetes-validations": [
                {
                    "rule": (
                        f"{DURATION_IN_MILLISECONDS} <= {_LONGEST // timedelta(milliseconds=1)}"
                    ),
                    "message": "is longer than ten years; use a shorter duration",
                }
            ],
        }
    ),
]
"""A length of time as users write it."""

Time = Annotated[
    datetime,
    BeforeValidator(parse_time),
    PlainSerializer(format_time, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "maxLength": 40,
            "pattern": f"^{TIME_PATTERN}$",
            "examples": ["2021-07-11T00:00:00Z"],
        }
    ),
]
"""A time of a status."""

Moment = Annotated[
    datetime,
    BeforeValidator(parse_moment),
    PlainSerializer(format_time, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 40,
            "pattern": f"^{MOMENT_PATTERN}$",
            "anyOf": [*MOMENT_FORMATS],
            "examples": ["2021-07-11", "2021-07-11T06:30:00Z"],
        }
    ),
]
"""A time as users write it: a date is midnight UTC."""

ByteSize = Annotated[
    int,
    BeforeValidator(parse_bytes),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^0*[1-9]\d*(Ki|Mi|Gi|Ti|k|M|G|T)?$",
            "minimum": 1,
            "maxLength": 20,
            "examples": ["64Mi", "1Gi"],
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A number of bytes as users write it."""


def count(number: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
