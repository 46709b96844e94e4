"""Status of the backfills on this machine."""

from datetime import UTC, datetime

from rich.console import Console

from backfill.cli.backfill_view import View
from backfill.cli.exit_status import SUCCEEDED, WAITS
from backfill.cli.local_commands import Context
from backfill.cli.result_json import result_line
from backfill.cli.run_end import exit_status, waiting_for
from backfill.cli.status_pages import details, listing
from backfill.cli.target import find
from backfill.controller.local.store import stored
from backfill.protocol.controller_liveness import controller_alive


def show_one(context: Context, target: str) -> int:
    """Shows one Backfill in full."""
    store, backfill = find(target, context.namespace, context.state)
    if context.as_json:
        print(result_line(backfill))  # noqa: T201
        return SUCCEEDED
    console = Console()
    console.print(details(View(backfill, datetime.now(UTC))))
    if exit_status(backfill) == WAITS and not controller_alive(store.channel):
        console.print(
            f"  {waiting_for(backfill, context.options(backfill.metadata.namespace))}",
            highlight=False,
            soft_wrap=True,
        )
    return SUCCEEDED


def show_all(context: Context) -> int:
    """Shows a line for each Backfill, of one namespace or of all."""
    stores = (
        store for store in stored(context.state) if context.namespace in (None, store.namespace)
    )
    backfills = [found for store in stores if (found := store.load()) is not None]
    if context.as_json:
        for backfill in backfills:
            print(result_line(backfill))  # noqa: T201
        return SUCCEEDED
    Console().print(
        listing(backfills) if backfills else f"no backfills in {context.state}", crop=False
    )
    return SUCCEEDED
