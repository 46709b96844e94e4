"""The controller of one Backfill in the foreground, until a person has to act or it has ended."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, find_condition
from backfill.api.resolved import resolved_spec
from backfill.cli.backfill_view import View
from backfill.cli.found_page import found_text
from backfill.cli.screen import Display, display
from backfill.controller.decisions.handing_over import repeats_warning, retention_warning
from backfill.controller.driver import shuffle_partitions
from backfill.controller.local.channel import ControllerChannel
from backfill.controller.local.jobs import Worker
from backfill.controller.local.loop import Loop
from backfill.controller.local.store import LocalStore
from backfill.controller.local_driver.backend import LocalBackend
from backfill.controller.reconcile import Reconciled, Reconciler
from backfill.iceberg.spark_catalogs import open_catalogs_of

_WORKER_LOG = "worker.log"


class Killed(Exception):  # noqa: N818
    """A second signal asked the process to end."""


def control(store: LocalStore, backfill: Backfill, console: Console) -> Backfill | None:
    """Runs the Backfill, and shows its progress.

    Returns its final state; None if it was removed.
    """
    application = store.application()
    open_catalogs_of(application.spark_conf | backfill.spec.overrides.spark_conf)
    backend = LocalBackend(
        store.attempts,
        store.channel,
        application=application,
        overrides=backfill.spec.overrides,
        partitions=shuffle_partitions(backfill, application.spark_conf),
    )
    worker = Worker(store.directory / _WORKER_LOG)
    loop = Loop(store, backend, ControllerChannel(store.channel), worker)
    try:
        with (
            display(console) as shown,
            _asked_to_end(lambda: _end(loop.reconciler, shown, store.name)),
        ):
            loop.run(lambda reconciled: _show(reconciled, shown))
    except Killed:
        _kill_driver(store, backend)
    finally:
        worker.close()
    return store.load()


def _show(reconciled: Reconciled, shown: Display) -> None:
    shown.show(_view_of(reconciled))
    before, found = reconciled.observed.backfill, reconciled.decision.status.resolved
    if found is not None and found != before.status.resolved:
        shown.say(found_text(resolved_spec(before.spec, found), found))
    for warning in _new_warnings(reconciled):
        shown.say(f"{reconciled.observed.backfill.metadata.name}: warning: {warning}")


def _new_warnings(reconciled: Reconciled) -> list[str]:
    """Warnings about the plan, once it is made, which are printed below its summary; about what
    Kafka may remove, and what is read twice.
    """
    status, before = reconciled.decision.status, reconciled.observed.backfill.status
    warnings = []
    if (warning := retention_warning(status)) and not retention_warning(before):
        warnings.append(warning)
    if (warning := repeats_warning(status)) and warning != repeats_warning(before):
        warnings.append(warning)
    planned = find_condition(status.conditions, ConditionType.PLANNED)
    if planned is not None and status.plan_id != before.plan_id:
        warnings += planned.message.splitlines()[1:]
    return warnings


def _view_of(reconciled: Reconciled) -> View:
    """What to show after a reconcile."""
    job = reconciled.observed.job
    backfill = reconciled.observed.backfill.model_copy(
        update={"status": reconciled.decision.status}
    )
    return View(backfill, reconciled.observed.now, job.progress if job else None)


def _kill_driver(store: LocalStore, backend: LocalBackend) -> None:
    backfill = store.load()
    for attempt in backfill.status.attempts[-1:] if backfill else ():
        backend.kill(attempt.number)


def _end(reconciler: Reconciler, shown: Display, name: str) -> None:
    """The first Ctrl-C (or SIGTERM) lets steps in progress be committed; the second kills."""
    if reconciler.shutting_down:
        raise Killed
    reconciler.shutting_down = True
    shown.say(
        f"{name}: stopping after the steps in progress; press Ctrl-C again to kill the driver"
    )


@contextmanager
def _asked_to_end(react: Callable[[], None]) -> Iterator[None]:
    """Calls a function for each SIGINT and SIGTERM while the block runs, in the main thread."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        react()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
