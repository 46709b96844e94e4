"""Descriptions of the definitions and help of the commands are in plain English, as CONTRIBUTING.md
asks for.
"""

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from backfill.cli.cluster.app import app as cluster
from backfill.cli.main import app as local
from backfill.controller.manager.options import parser
from backfill.crd.definitions import (
    backfill_definition,
    job_report_definition,
    split_assignment_definition,
)
from cases import cases

_RIDDLES = re.compile(
    r"\b(can not|tells?|told|mend(s|ed|ing)?|lets? go of|as long as it takes|stands(?! for)|in a"
    r" word|heard of|speaks?"
    r"|looks? after|go(es)? on)\b",
    re.IGNORECASE,
)


def described(part: Any) -> Iterator[str]:
    """The texts of a definition."""
    if isinstance(part, dict):
        yield from (
            part[key] for key in ("description", "message") if isinstance(part.get(key), str)
        )
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        yield from described(inner)


def helped(command: Any) -> Iterator[str]:
    """The texts of a command, its options and its subcommands."""
    yield from (
        text
        for text in (command.help, *(getattr(each, "help", None) for each in command.params))
        if text
    )
    for each in getattr(command, "commands", {}).values():
        yield from helped(each)


@cases(
    "texts",
    {
        "Backfill": list(described(backfill_definition())),
        "SplitAssignment": list(described(split_assignment_definition())),
        "JobReport": list(described(job_report_definition())),
        "kubectl backfill": list(helped(get_command(cluster))),
        "backfill": list(helped(get_command(local))),
        "backfill-operator": [parser({}).format_help()],
    },
)
def test_no_text_has_to_be_deciphered(texts: list[str]) -> None:
    assert len("".join(texts)) > 500
    assert [text for text in texts if _RIDDLES.search(text)] == []
