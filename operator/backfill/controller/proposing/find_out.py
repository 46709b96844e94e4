"""Finds out all that a Backfill says of an application: what it reads and writes, where that is
kept, and how much to read around the window.
"""

import json
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backfill.api.backfill import API_VERSION, KIND, Backfill
from backfill.api.errors import Problem, first_line
from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.api.spark_application import Application
from backfill.api.spec import Window
from backfill.controller.proposing.commented import plain
from backfill.controller.proposing.explain_program import explain
from backfill.controller.proposing.loaded_tables import LoadedTables
from backfill.controller.proposing.name_matching import uniquely_named
from backfill.controller.proposing.proposed import Lake, Proposal, ProposedSource
from backfill.controller.proposing.proposed_outputs import outputs_of
from backfill.controller.proposing.proposed_sources import source_of
from backfill.controller.proposing.proposed_spec import spec_of
from backfill.controller.proposing.proposed_times import times
from backfill.controller.proposing.survey_program import survey_of
from backfill.iceberg.catalog_problems import lasts
from backfill.iceberg.library_errors import says_later
from backfill.iceberg.table_listing import KnownTables
from backfill.planning.lateness_sample import ArrivalLags, measure_lags
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace
from backfill.protocol.explanation import ExplainedQuery
from backfill.protocol.survey_result import Survey, SurveyedQuery


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found of an application and its tables."""

    application: str
    window: Window
    proposal: Proposal
    lags: Mapping[str, ArrivalLags]
    """By source, how late its rows arrived."""
    problems: Sequence[str]
    """Tables that could not be loaded, and why lateness could not be measured."""
    unread: Sequence[Problem] = ()
    """Those of them with which another table, or more input, might have been found."""

    def spec(self, explained: Sequence[ExplainedQuery] | None = None) -> dict[str, Any]:
        """The fields of a spec, with comments. ``explained`` is what results depend on, if that is
        known.
        """
        lengths = times(self.proposal, explained, self.lags)
        return spec_of(self.application, self.window, self.proposal, lengths, self.lags)


def find_out(
    application: Application,
    window: Window,
    doing: Callable[[str], None],
    ignored: Collection[str] = (),
) -> Findings:
    """What an application reads and writes, and its tables. ``doing`` receives what happens. Of
    queries that are ``ignored``, nothing is looked for.

    Raises:
        BadInput: the program does what a backfill cannot redirect, or has no stream or no query.
        BackfillError: the program failed.
    """
    doing("running the program until its queries start")
    survey = _without(ignored, survey_of(application, window=window))
    doing("looking for its tables")
    tables = KnownTables()
    proposal = propose(survey, LoadedTables(tables))
    lags, unmeasured = _lags(proposal, tables, window)
    problems = [*tables.problems, *map(str, unmeasured)]
    unread = (*tables.unread, *unmeasured)
    return Findings(application.name, window, proposal, lags, problems, unread)


def _without(ignored: Collection[str], survey: Survey) -> Survey:
    """The survey without queries that the spec leaves out, and without what only they read."""
    if not ignored:
        return survey
    left = tuple(each for each in survey.queries if _identities(each).isdisjoint(ignored))
    read = {name for each in left for name in each.inputs}
    inputs = tuple(each for each in survey.inputs if each.name in read)
    return survey.model_copy(update={"queries": left, "inputs": inputs})


def _identities(query: SurveyedQuery) -> set[str]:
    """How ``spec.ignoredQueries`` may name a query."""
    if query.name:
        return {query.name}
    places = [each.replace("`", "").rstrip("/") for each in (query.topic, query.table) if each]
    last = (re.split(r"[./]", each)[-1] for each in places)
    return {*places, *last, *filter(None, (query.function,))}


def reach(
    backfill: Backfill,
    application: Application,
    plan: Callable[[Backfill, Workspace], PlanHeader],
) -> tuple[ExplainedQuery, ...]:
    """What the results of a Backfill's queries depend on. ``plan`` changes no table.

    Raises:
        BackfillError: it cannot be planned, or the program failed.
    """
    with tempfile.TemporaryDirectory(prefix="backfill-reach-") as directory:
        workspace = Workspace(directory)
        return explain(backfill, application, plan(backfill, workspace).plan_id, workspace)


def backfill_with(name: str, namespace: str | None, spec: Mapping[str, Any]) -> Backfill:
    """The Backfill of found fields, as it is read from a manifest.

    Raises:
        InvalidManifest: with every problem of it.
    """
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": plain(spec)}
    return load_manifests(json.dumps(document), require_application=False).backfill


def propose(survey: Survey, lake: Lake) -> Proposal:
    """The sources and outputs for a program."""
    outputs, ignored, unsolved = outputs_of(survey, lake)
    written = {output.table.value for output in outputs}
    found = [source_of(each, survey, lake, written) for each in survey.inputs]
    sources = uniquely_named([_of_one_topic(each, found) for each in found])
    return Proposal(survey, tuple(sources), tuple(outputs), tuple(ignored), tuple(unsolved))


def _of_one_topic(source: ProposedSource, all_sources: Sequence[ProposedSource]) -> ProposedSource:
    """The source, with what to decide if its table was found for another topic as well: each would
    read the rows of both.
    """
    table = source.table
    others = [
        each.read.name
        for each in all_sources
        if each.found and each.table.value == table.value and each.read.name != source.read.name
    ]
    if not source.found or not others or source.read.kind == "Table":
        return source
    todo = (
        f"{table.value} also matches {', '.join(others)}, and each would read all of its rows. Set"
        " this to the table of this topic or, if it has the rows of several, set filter of each."
    )
    return replace(source, table=replace(table, todo=(*table.todo, todo)))


def _lags(
    proposal: Proposal, tables: KnownTables, window: Window
) -> tuple[dict[str, ArrivalLags], list[Problem]]:
    """By source how late its rows arrived, and why that could not be measured."""
    lags, problems = {}, []
    for source in proposal.sources:
        if source.event_column is None or source.timestamp_unit is not None:
            continue
        if not source.found:
            continue
        try:
            table = tables.load(source.table.value)
            found = measure_lags(table, source.event_column, source.timestamp_column.value, window)
        except Exception as error:  # whatever PyIceberg raises for files
            message = (
                f"The lateness of rows in {source.table.value} could not be measured:"
                f" {first_line(error)}"
            )
            problems.append(
                Problem("", message, may_pass=not lasts(error), unavailable=says_later(error))
            )
            continue
        if found is not None:
            lags[source.name] = found
    return lags, problems
