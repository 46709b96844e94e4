"""Shows rows of a result beside production's."""

import json
import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backfill.api.backfill import Backfill
from backfill.api.base import printable
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.output import Output
from backfill.api.quantities import count
from backfill.cli.optional_dependencies import TABLES, require
from backfill.cli.text import say

if TYPE_CHECKING:
    from backfill.outputs.sample_rows import Pair

_MOST_CHARACTERS = 200
_MOST_BESIDE = 2
"""Rows of production that are shown beside one of the result."""


def show_sample(backfill: Backfill, name: str | None, *, rows: int, as_json: bool) -> None:
    """Prints some rows of a staged result, and of production the rows with the same keys. Tables
    are opened with PyIceberg's configuration on this machine.

    Args:
        name: of the output; None for the only one.

    Raises:
        BadInput: there is no such output, or its table cannot be opened.
        BackfillError: nothing is staged.
    """
    require(*TABLES)
    from backfill.outputs.result_names import Result
    from backfill.outputs.sample_rows import sample

    output = _chosen(backfill, name)
    status = next((each for each in backfill.status.outputs if each.name == output.name), None)
    if backfill.status.plan_id is None or status is None:
        raise BackfillError(f"{backfill.metadata.name} is not planned yet and has no result")
    about = backfill.metadata
    pairs = sample(
        output,
        Result(about.namespace, about.name, about.uid, backfill.status.plan_id, output.name),
        backfill.spec.window,
        rows=rows,
        published=status.snapshot_id,
        base=status.base_snapshot_id,
    )
    if as_json:
        print(json.dumps([_document(pair) for pair in pairs]))  # noqa: T201
        return
    console = Console()
    shown = count(len(pairs), "row")
    say(console, f"{output.name}: {shown} of the result staged for {output.table}")
    keys = output.compared_keys
    if not keys:
        say(
            console,
            "Production's rows are not shown: outputs[].keys, which would identify them,"
            " is not set.",
        )
    for pair in pairs:
        console.print(_table(pair, keys))


def _document(pair: "Pair") -> dict[str, object]:
    return {
        "result": _shown(pair.result),
        "production": _shown(pair.production),
        "differs": list(pair.differs),
    }


def _chosen(backfill: Backfill, name: str | None) -> Output:
    outputs = backfill.spec.outputs
    names = ", ".join(output.name for output in outputs)
    found = [output for output in outputs if name in (None, output.name)]
    if len(found) == 1:
        return found[0]
    if name is None:
        message, fix = "there are several outputs", f"choose one with --of: {names}"
        raise BadInput(Problem("--of", message if outputs else "there is no output", fix))
    raise BadInput(Problem("--of", f"there is no output {name}", f"the outputs are: {names}"))


def _table(pair: "Pair", keys: tuple[str, ...]) -> Table:
    production = pair.production[:_MOST_BESIDE]
    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("")
    table.add_column("result", overflow="fold")
    for number in range(max(len(production), 1) if keys else 0):
        table.add_column(
            f"production {number + 1} of {len(pair.production)}"
            if len(production) > 1
            else "production",
            overflow="fold",
        )
    for column, value in pair.result.items():
        others = [_text(row.get(column)) for row in production]
        if keys and not production:
            others = [Text("no such row" if column == keys[0] else "")]
        style = "yellow" if column in pair.differs else None
        table.add_row(Text(printable(column)), _text(value), *others, style=style)
    return table


def _shown(value: object) -> object:
    """A value as JSON can say it."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _shown(each) for key, each in value.items()}
    return _words(value)


def _words(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | dict):
        return json.dumps(_shown(value), ensure_ascii=False)
    return str(value)


def _text(value: object) -> Text:
    text = "null" if value is None else _words(value)
    cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return Text(printable(cut))
