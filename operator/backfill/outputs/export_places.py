"""Checks the directories of exports before anything runs: each is one of its own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import Table, TableProperties

from backfill.api.errors import BackfillError, Problem
from backfill.api.job_report import JOB_VARIABLE
from backfill.api.output import Output
from backfill.api.workspace_locations import is_below, is_local
from backfill.outputs.export import PROBE, ExportDirectory, not_own
from backfill.outputs.result_names import Result, data_directory

_CHOOSE = "choose an empty directory, or one that does not exist"
_MOUNTS = Path("/proc/self/mountinfo")


def check_exports(
    outputs: Sequence[Output],
    results: Sequence[Result],
    tables: Mapping[str, Table],
    workspace: str,
) -> Iterator[Problem]:
    """Problems of outputs in publish mode ``Export`` whose table can be opened.

    ``tables`` are those of the outputs and sources, by their names, as far as they can be opened;
    ``workspace`` is the Backfill's part of it, empty if it is unknown.
    """
    places = {} if not workspace else {workspace: "the workspace of this Backfill"}
    for name, table in tables.items():
        places |= dict.fromkeys(_locations(table), f"the table {name}")
    for number, (output, result) in enumerate(zip(outputs, results, strict=True)):
        location = output.publish.location
        if location is None or output.table not in tables:
            continue
        field = f"spec.outputs[{number}]"
        wrong = [
            *_form(location, f"{field}.publish.location"),
            *_overlaps(location, places, f"{field}.publish.location"),
            *_lost(location, f"{field}.publish.location"),
            *_renamed_columns(tables[output.table], output, f"{field}.table"),
        ]
        yield from wrong or _unusable(output, result, f"{field}.publish.location")
        places[location] = f"the location of output {output.name}"


def _form(location: str, field: str) -> Iterator[Problem]:
    place = urlsplit(location)
    if place.scheme and not place.path.strip("/"):
        yield Problem(field, f"{location} is a whole bucket", "use a directory in it")
    elif not place.scheme and not location.startswith("/"):
        yield Problem(
            field,
            f"{location} is a relative path",
            "use an absolute path or an object store",
        )


def _overlaps(location: str, places: Mapping[str, str], field: str) -> Iterator[Problem]:
    here = _resolved(location)
    for place, what in places.items():
        there = _resolved(place)
        if is_below(here, there) or is_below(there, here):
            relation = "within" if is_below(here, there) else "around"
            yield Problem(field, f"{location} is {relation} {what} ({place})", _CHOOSE)
            return


def _lost(location: str, field: str) -> Iterator[Problem]:
    """Whether files are lost with the pod in which this job runs."""
    if JOB_VARIABLE not in os.environ or not is_local(location):
        return
    place = Path(_resolved(location))
    mounted = {line.split()[4] for line in _MOUNTS.read_text().splitlines()} - {"/"}
    if not any(place.is_relative_to(each) for each in mounted):
        yield Problem(
            field,
            f"{location} is on no volume, and the disk of the job's pod is lost with the pod",
            "mount a volume there in the application's driver, or use an object store",
        )


def _resolved(location: str) -> str:
    """The location without links, if it is on a disk."""
    return os.path.realpath(location.removeprefix("file:")) if is_local(location) else location


def _locations(table: Table) -> Iterator[str]:
    yield table.metadata.location
    yield data_directory(table.metadata)
    if metadata := table.properties.get(TableProperties.WRITE_METADATA_PATH):
        yield metadata


def _renamed_columns(table: Table, output: Output, field: str) -> Iterator[Problem]:
    """Columns that have another name in data files than in their table."""
    schema = table.schema()
    written = sanitize_column_names(schema)
    for column in schema.column_names:
        name = written.find_column_name(schema.find_field(column).field_id)
        if name != column:
            yield Problem(
                field,
                f"column {column} of {output.table} is called {name} in data files, and publish"
                " mode Export copies data files unchanged",
                "rename the column to a name of letters, digits and _, or publish to the table",
            )


def _unusable(output: Output, result: Result, field: str) -> Iterator[Problem]:
    """Whether the directory has files of others, or cannot be written to."""
    try:
        place = ExportDirectory(output, result)
        if foreign := place.foreign():
            yield Problem(
                field, not_own(place.location, foreign), f"move them elsewhere, or {_CHOOSE}"
            )
            return
        place.write(PROBE, ())
        place.remove((PROBE,))
    except BackfillError as error:
        fix = "check the location, and the properties of the catalog of the table"
        yield Problem(field, str(error), fix, may_pass=True)
