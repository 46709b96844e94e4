"""Checks a file before it is applied to a cluster. Nothing is stored."""

import json
from pathlib import Path

from rich.console import Console

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.api.forbidden_changes import spec_difference
from backfill.api.manifests.backfill_manifest import ForCluster, load_for_cluster
from backfill.api.quantities import count, format_time
from backfill.api.spec import LIVE
from backfill.cli.backfill_view import View
from backfill.cli.cluster.connection import OPERATORS_WORKSPACE, Place, read
from backfill.cli.exit_status import SUCCEEDED
from backfill.cli.text import moment, say, seconds
from backfill.controller.children.child_manifests import child_problems
from backfill.controller.cluster.production import read_production
from backfill.kube.object_names import CLI_MANAGER
from backfill.kube.request_errors import AlreadyExists, Denied, NotFound, Refused
from backfill.kube.resources import BACKFILL


def check_file(place: Place, file: Path, *, as_json: bool) -> int:
    """Shows what a file would read, if it passes all checks.

    It is checked by the rules, by the API server in a dry run, and by the application's
    requirements.

    Raises:
        BadInput: with every problem found.
    """
    given = load_for_cluster(file)
    backfill = place.here(given.backfill)
    problems = [*_refused(place, given, backfill), *_no_child(place, given, backfill)]
    if problems:
        raise BadInput(problems)
    if as_json:
        print(json.dumps(_document(backfill)))  # noqa: T201
    else:
        _print_plan(backfill, place)
    return SUCCEEDED


def _refused(place: Place, given: ForCluster, backfill: Backfill) -> list[Problem]:
    """Why the API server refuses it, including conflicts with an existing object of its name."""
    metadata = {**given.document["metadata"], "namespace": place.namespace}  # type: ignore[dict-item]
    manifest = {**given.document, "metadata": metadata}
    try:
        try:
            place.cluster.create(BACKFILL, manifest, manager=CLI_MANAGER, dry_run=True)
        except AlreadyExists:
            place.cluster.apply(BACKFILL, manifest, manager=CLI_MANAGER, dry_run=True)
    except (NotFound, Refused, Denied) as error:
        return _changes(place, backfill) or [Problem("", str(error))]
    return _changes(place, backfill)


def _changes(place: Place, backfill: Backfill) -> list[Problem]:
    """Changes of the input of an existing Backfill that is planned."""
    name = backfill.metadata.name
    found = place.look(name)
    there = read(found) if found is not None else None
    if there is None or there.status.plan_id is None:
        return []
    changes = spec_difference(there.spec, backfill.spec)
    fix = f"start over with: {place.command('cancel', name)}, or give it another metadata.name"
    planned = Problem("", f"{name} is already planned; its input can no longer change", fix)
    return [*changes, planned] if changes else []


def _no_child(place: Place, given: ForCluster, backfill: Backfill) -> list[Problem]:
    """Why the application could not be started."""
    application = given.application or read_production(place.cluster, backfill)
    if isinstance(application, Problem):
        return [application]
    return child_problems(backfill, application, OPERATORS_WORKSPACE)


def _document(backfill: Backfill) -> dict[str, object]:
    start, end = View(backfill, backfill.spec.window.start).read_range
    return {
        "name": backfill.metadata.name,
        "namespace": backfill.metadata.namespace,
        "readFrom": format_time(start),
        "readTo": LIVE if backfill.spec.window.live else format_time(end),
        "longestStepSeconds": backfill.spec.max_misalignment.total_seconds() / 2,
        "sources": [
            {"name": source.name, "table": source.table} for source in backfill.spec.sources
        ],
        "outputs": [
            {"name": output.name, "table": output.table, "publish": str(output.publish.mode)}
            for output in backfill.spec.outputs
        ],
    }


def _print_plan(backfill: Backfill, place: Place) -> None:
    name, spec = backfill.metadata.name, backfill.spec
    start, end = View(backfill, spec.window.start).read_range
    step = spec.max_misalignment / 2
    spans = f"steps span at most {seconds(step.total_seconds())}"
    if spec.window.live:
        stretch = f"{moment(start)} UTC to the newest row, where live traffic continues,"
    else:
        stretch = f"{moment(start)} to {moment(end)} UTC"
        steps = -(-(end - start) // step)
        spans = f"{spans}: {count(steps, 'step')}, or more where data is dense"
    lines = [
        f"{name}: the API server accepts it in namespace {backfill.metadata.namespace}",
        f"  reads {stretch} of " + ", ".join(source.table for source in spec.sources),
        f"  {spans}",
        *(
            f"  output {output.name}: {output.table}, publish mode {output.publish.mode}"
            + (f" to {output.publish.location}" if output.publish.location else "")
            for output in spec.outputs
        ),
        *(
            []
            if spec.workspace
            else ["  workspace: the operator's default; if it has none, the Backfill is refused"]
        ),
        "  the tables are read after you apply this; to see the plan then, run:",
        f"    {place.command('plan', name)}",
    ]
    for line in lines:
        say(Console(), line)
