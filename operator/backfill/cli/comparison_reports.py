"""Where the reports of comparisons are, and what they say; rows that publishing would remove."""

import json
import webbrowser
from pathlib import Path

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError
from backfill.api.status import OutputStatus
from backfill.api.workspace_locations import is_local
from backfill.cli.text import say
from backfill.controller.decisions.open_result_messages import lost_rows
from backfill.controller.decisions.validated_condition import validated


def show_reports(backfill: Backfill, *, as_json: bool, browse: bool = False) -> None:
    """Prints how each output compares with production or its reference, and where its report is;
    and where in the window publishing removes rows that it does not replace.

    Args:
        browse: also opens the reports in a browser.

    Raises:
        BackfillError: nothing was compared or counted, or a report that is to be opened is not on
            this machine.
    """
    compared = [output for output in backfill.status.outputs if output.comparison is not None]
    shown = [each for each in backfill.status.outputs if each.comparison or each.losses]
    if not shown:
        asked = any(output.validate_ is not None for output in backfill.spec.outputs)
        why = (
            "results are compared after the last step"
            if asked
            else "no output has spec.outputs[].validate"
        )
        raise BackfillError(f"{backfill.metadata.name} has not been compared: {why}")
    if as_json:
        print(json.dumps([_figures(output) for output in shown]))  # noqa: T201
    else:
        _print_summary(backfill, shown)
    if browse:
        for output in compared:
            _open(output)


def _print_summary(backfill: Backfill, shown: list[OutputStatus]) -> None:
    asked = {output.name: output for output in backfill.spec.outputs}
    console = Console()
    for output in shown:
        said = []
        if output.comparison is not None:
            said = [validated(asked[output.name], output), *output.comparison.causes]
        if output.losses is not None:
            said.append(lost_rows(output, asked[output.name].publish.max_loss))
        for text in filter(None, said):
            say(console, text)


def _figures(output: OutputStatus) -> dict[str, object]:
    comparison = output.comparison.to_manifest() if output.comparison else {}
    losses = {"losses": output.losses.to_manifest()} if output.losses else {}
    known = {"output": output.name, "table": output.table, "match": output.match}
    return {**known, **comparison, **losses}


def _open(output: OutputStatus) -> None:
    location = output.comparison.report if output.comparison else ""
    if not location:
        return
    if not is_local(location):
        raise BackfillError(f"the report is at {location}; download it to open it in a browser")
    webbrowser.open(Path(location.removeprefix("file:")).absolute().as_uri())
