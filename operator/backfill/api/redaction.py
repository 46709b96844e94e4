"""Keeps secrets out of messages, including those of client libraries that repeat their input."""

import base64
import html
import io
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TextIO
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from backfill.api.errors import BackfillError, BadInput

_PUBLIC = frozenset(
    {
        "type",
        "uri",
        "warehouse",
        "prefix",
        "s3.endpoint",
        "s3.region",
        "client.region",
        "oauth2-server-uri",
        "scope",
    }
)
"""Properties that locate a catalog. A message without them would not help; credentials within them
are redacted.
"""
_SHORTEST = 4
"""Characters. A shorter value occurs within ordinary words."""
_SHORTEST_ENCODED = 6
"""The same for encoded values, of which fewer characters are certain."""
_PLAIN = re.compile(r"true|false|none|null|\d{1,6}(\.\d+)?", re.IGNORECASE)
"""Values that occur in any text and are no secret."""
_SECRET = (
    r"(?:passw(?:or)?d|passwd|pwd|passphrase|secret|token|credential|signature|sig|"
    r"(?:api|access|account|private)[_.-]?key)"
)
_SECRET_NAME = re.compile(
    rf"(?:{_SECRET}|key$|pass$|dsn$|conn\w*_string|database_url)", re.IGNORECASE
)
_LOGIN = re.compile(r"(://)[^/\s@]+@")
_NAMED = rf"(?=[\w.-]*?{_SECRET})[\w.-]++"
"""A name, read once from its beginning: messages have names that somebody made long to keep this
busy.
"""
_PARAMETER = re.compile(rf"((?:^|[?&;,\s\"'(]){_NAMED}=)(?!\*\*\*)[^&;,\s\"')]+", re.IGNORECASE)
_JSON_FIELD = re.compile(rf"""(["']{_NAMED}["']\s*+:\s*+["'])(?!\*\*\*)[^"']+""", re.IGNORECASE)
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic)\s++(?!\*\*\*)[\w.~+/=-]{8,}")
_HIDDEN = "***"
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""Escapes are written in either case. Other letters stay: some get longer or shorter."""


class Redactor:
    """Redacts known secrets, in the forms in which libraries repeat them, and anything that looks
    like credentials.
    """

    def __init__(self, secrets: Iterable[str] = ()):
        """``secrets`` are plain values, without encoding."""
        self._known = {form.translate(_LOWER) for secret in secrets for form in _forms(secret)}

    def text(self, text: str) -> str:
        """The text without secrets."""
        text = self._without_known(text)
        text = _LOGIN.sub(rf"\1{_HIDDEN}@", text)
        for pattern in (_PARAMETER, _JSON_FIELD):
            text = pattern.sub(rf"\1{_HIDDEN}", text)
        return _AUTHORIZATION.sub(rf"\1 {_HIDDEN}", text)

    def _without_known(self, text: str) -> str:
        """The text without known secrets.

        Each secret is searched for separately: a pattern of thousands of them would be tried at
        every character.
        """
        left, end = [], 0
        for begin, past in sorted(self._places(text.translate(_LOWER))):
            if begin >= end:
                left += [text[end:begin], _HIDDEN]
            end = max(end, past)
        return "".join((*left, text[end:]))

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        for form in self._known:
            end = 0
            while (begin := text.find(form, end)) >= 0:
                end = begin + len(form)
                yield begin, end

    def error(self, error: BackfillError) -> BackfillError:
        """The same error without secrets."""
        if isinstance(error, BadInput):
            texts = (
                (problem, self.text(problem.message), self.text(problem.fix))
                for problem in error.problems
            )
            return type(error)(
                [replace(problem, message=message, fix=fix) for problem, message, fix in texts]
            )
        return type(error)(self.text(str(error)))


_NOTHING_KNOWN = Redactor()


def redact(text: str) -> str:
    """The text without anything that looks like credentials."""
    return _NOTHING_KNOWN.text(text)


def redactor(catalogs: Mapping[str, Mapping[str, str]], environment: Mapping[str, str]) -> Redactor:
    """Redacts the secrets in catalogs' properties and in a process's environment."""
    given = (secret for properties in catalogs.values() for secret in secrets_of(properties))
    return Redactor([*given, *secrets_of_environment(environment)])


def secrets_of(properties: Mapping[str, str]) -> Iterator[str]:
    """The secret properties of a catalog: all but those that locate it."""
    for name, value in properties.items():
        yield from _in_uri(value)
        if name.lower() in _PUBLIC:
            continue
        yield value
        if name.lower() == "credential":
            yield value.partition(":")[2]  # PyIceberg sends both halves by themselves
        yield from (
            part.partition("=")[2]
            for part in value.split(";")
            if _SECRET_NAME.search(part.partition("=")[0])
        )


def secrets_of_environment(environment: Mapping[str, str]) -> Iterator[str]:
    """The secrets in environment variables, by their names and by credentials in URIs."""
    for name, value in environment.items():
        yield from _in_uri(value)
        # a path says where a secret is, and is none
        if _SECRET_NAME.search(name) and not value.startswith("/"):
            yield value
            yield value.partition(":")[2]


class RedactedText(io.TextIOBase):
    """A text stream that redacts what is written to it, including logs of libraries and
    tracebacks.
    """

    def __init__(self, stream: TextIO, redactor: Redactor):
        """``stream`` receives the redacted text."""
        self._stream = stream
        self._redactor = redactor

    def write(self, text: str) -> int:
        """Redacts each text separately, since a secret may span several lines."""
        self._stream.write(self._redactor.text(text))
        return len(text)

    def flush(self) -> None:
        """Flushes the stream."""
        self._stream.flush()


def _in_uri(value: str) -> Iterator[str]:
    """The password of a URI, as written and decoded, and its secret parameters."""
    try:
        place = urlsplit(value)
        password = place.password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))
    yield from (meant for name, meant in parse_qsl(place.query) if _SECRET_NAME.search(name))


def _forms(secret: str) -> Iterator[str]:
    secret = secret.strip()
    for text in {secret, *secret.splitlines()}:
        if len(text) < _SHORTEST or _PLAIN.fullmatch(text):
            continue
        yield from (text, quote(text), quote(text, safe=""), quote_plus(text), html.escape(text))
        yield from (
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            repr(text)[1:-1],
        )
        if len(text) >= _SHORTEST_ENCODED:
            yield text.encode().hex()
            yield from _base64(text.encode())


def _base64(secret: bytes) -> Iterator[str]:
    """The part of a secret's Base64 form that does not depend on the text around it, as in the
    header of a login.
    """
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode()
        certain = encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        yield certain
        yield certain.translate(str.maketrans("+/", "-_"))
