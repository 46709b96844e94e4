"""Finding out what an application reads and writes, for a Backfill that does not say so."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from backfill.api.backfill import Backfill, ObjectMeta
from backfill.api.errors import BadInput, Problem
from backfill.api.manifests.spec_rules import check_spec
from backfill.api.resolved import (
    MOST_ORIGINS,
    Origin,
    Resolved,
    delivered,
    resolved_spec,
    search_digest,
)
from backfill.api.spark_application import Application
from backfill.api.spec import BackfillSpec, Ordering
from backfill.controller.jobs.any_job import OnProgress
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.proposing.commented import TODO, comments, plain
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace

if TYPE_CHECKING:
    from backfill.controller.proposing.find_out import Findings
    from backfill.controller.proposing.proposed import Proposal

_LENGTHS = ("spec.window.warmUp", "spec.window.drain")
_LATENESS = "spec.ordering.allowedLateness"
_INIT = "complete what backfill init proposes"
_FIXES = {
    "spec.window.": "set this field, to 1ms if nothing is needed",
    _LATENESS: "if the timestampColumn of each source is the time of arrival, set this field to 0s;"
    " otherwise complete what backfill init proposes",
    "spec.outputs[": "list this output in spec.outputs",
    "spec.staticTables": "list these tables in spec.staticTables",
}
"""What a short spec can say itself, by the beginning of the field."""


@dataclass(frozen=True, slots=True)
class ResolveJob:
    """Runs the application's main program up to the point where its queries start, and looks up
    its tables. No query is run, and no table is changed.
    """

    backfill: Backfill
    """With a short spec, and without a status."""
    application: Application

    @classmethod
    def of(cls, backfill: Backfill, application: Application) -> Self:
        """The job for a Backfill."""
        given, unset = backfill.metadata, {"suspend": False, "retry_nonce": None}
        metadata = ObjectMeta(name=given.name, namespace=given.namespace, uid=given.uid)
        spec = backfill.spec.model_copy(update=unset)
        return cls(Backfill(metadata=metadata, spec=spec), application)

    def run(self, on_progress: OnProgress) -> Resolved:
        """Returns what was found.

        Raises:
            BadInput: a person has to decide something, or the program cannot be run on history.
            BackfillError: the program failed.
        """
        from backfill.controller.proposing.fetched_program import fetched

        with tempfile.TemporaryDirectory(prefix="backfill-program-") as directory:
            catalog = self.backfill.spec.workspace_catalog
            return self._found(fetched(self.application, catalog, Path(directory)), on_progress)

    def _found(self, application: Application, on_progress: OnProgress) -> Resolved:
        from backfill.controller.proposing.find_out import find_out, reach
        from backfill.controller.proposing.proposed_outputs import with_given

        def plan(backfill: Backfill, workspace: Workspace) -> PlanHeader:
            job = PlanJob.of(backfill, workspace, parallelism=1, dry_run=True)
            return job.run(on_progress).header

        spec = self.backfill.spec
        findings = find_out(application, spec.window, lambda _what: None, spec.ignored_queries)
        if findings.unread:  # it may hide the table that is meant, or one with the same name
            raise BadInput(findings.unread)
        wanted = _left(findings.proposal, spec)
        decided = with_given(wanted, spec.outputs, spec.ignored_queries)
        findings = replace(findings, proposal=decided)
        self._refuse(findings, findings.spec(), _LENGTHS)
        known = resolved_spec(spec, _resolved(spec, findings.spec()))
        _check(spec, known)
        complete = self.backfill.model_copy(update={"spec": known})
        described = findings.spec(reach(complete, application, plan))
        self._refuse(findings, described)
        found = _resolved(spec, described)
        _check(spec, resolved_spec(spec, found))
        return found

    def _refuse(
        self, findings: "Findings", described: Mapping[str, Any], later: tuple[str, ...] = ()
    ) -> None:
        """Refuses what a person has to decide, unless the spec does. ``later``: fields that are
        looked at again.
        """
        asked = [
            Problem(field, f"{_of_output(described, field)}{question}", _fix(field))
            for field, question in _questions(described)
            if field not in later and not _decided(self.backfill.spec, described, field)
        ]
        asked += [Problem("spec.outputs", each, _INIT) for each in findings.proposal.unsolved]
        asked += _wrong_modes(self.backfill.spec, findings)
        if asked:
            raise BadInput([*asked, *(Problem("", each) for each in findings.problems)])


def _left(proposal: "Proposal", spec: BackfillSpec) -> "Proposal":
    """The proposal without outputs of queries that the spec ignores, or delivers as a whole. A
    function's outputs have names of their own.
    """
    ignored, sent = {*spec.ignored_queries}, {*delivered(spec)}
    outputs = tuple(
        each
        for each in proposal.outputs
        if (ignored if each.query.function is None else ignored | sent).isdisjoint(
            (each.query.name, each.query.function)
        )
    )
    return replace(proposal, outputs=outputs)


def _check(spec: BackfillSpec, known: BackfillSpec) -> None:
    """Checks the completed spec. Whoever reads the problems has not written what was found.

    Raises:
        BadInput: with every violation of a rule.
    """
    problems = check_spec(known)
    for number, problem in enumerate(problems):
        place = re.match(r"spec\.(outputs|sources)\[(\d+)\]", problem.field)
        if place is None or int(place[2]) < len(getattr(spec, place[1])):
            continue
        found = getattr(known, place[1])[int(place[2])]
        how = _INIT if place[1] == "sources" else f"list {found.name} in spec.outputs, and there"
        message = f"of {found.name}, which was found, {problem.message}"
        problems[number] = Problem(problem.field, message, f"{how}: {problem.fix}")
    if problems:
        raise BadInput(problems)


def _fix(field: str) -> str:
    return next((fix for start, fix in _FIXES.items() if field.startswith(start)), _INIT)


def _questions(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a person has to decide and what is known of it, by field. While a table is unknown, so
    are its columns.
    """
    unknown: set[str] = set()
    known: dict[str, list[str]] = {}
    for field, text in comments(dict(described)):
        item, _, name = field.rpartition(".")
        if not text.startswith(TODO):
            known.setdefault(field, []).append(text)
        elif item not in unknown:
            yield field, " ".join([*known.get(field, ()), text.removeprefix(TODO)]).rstrip(".")
            unknown |= {item} if name == "table" else set()


def _of_output(described: Mapping[str, Any], field: str) -> str:
    number = re.match(r"spec\.outputs\[(\d+)\]", field)
    return f"of output {plain(described['outputs'][int(number[1])])['name']}: " if number else ""


def _decided(spec: BackfillSpec, described: Mapping[str, Any], field: str) -> bool:
    """Whether the spec says what a question is about, or a default answers it."""
    if field in _LENGTHS:
        window = spec.window
        said = window.warm_up if field.endswith("warmUp") else window.drain
        # rows outside of the window could not be told from the others
        return bool(said) or any(each.timestamp_column is None for each in spec.outputs)
    if field == "spec.staticTables":
        listed = {each.table for each in spec.static_tables}
        return all(each["table"] in listed for each in plain(described["staticTables"]))
    if field.startswith("spec.outputs["):
        output = plain(described["outputs"][int(field.split("[")[1].split("]", maxsplit=1)[0])])
        return output["name"] in {each.name for each in spec.outputs}
    if field == _LATENESS:
        # the default answers what could not be measured, but not that production drops rows: the
        # column of a source may not be the time of arrival
        measured = plain(described["ordering"]["allowedLateness"]) != "0s"
        return measured or spec.ordering.allowed_lateness != Ordering().allowed_lateness
    return False


def _wrong_modes(spec: BackfillSpec, findings: "Findings") -> Iterator[Problem]:
    """Outputs that cannot be published like all others."""
    own = [each for each in spec.outputs if spec.publish is None or each.publish.mode != "None"]
    said = {each.name for each in own}
    for output in findings.proposal.outputs:
        delivers = output.delivers is not None
        if delivers == (spec.publish == "Deliver") or output.name in said:
            continue
        mode = spec.publish or "None"
        can = "has effects outside of Spark, which" if delivers else "writes a table, which"
        way = "can only be delivered" if delivers else "is published and not delivered"
        yield Problem(
            "spec.publish",
            f'"{mode}" does not suit {output.name}: it {can} {way}',
            f"list {output.name} in spec.outputs with a publish mode of its own, or in"
            " spec.ignoredQueries",
        )


def _resolved(spec: BackfillSpec, described: Mapping[str, Any]) -> Resolved:
    """What was found, without the outputs that the spec lists itself."""
    found, given = plain(dict(described)), {each.name for each in spec.outputs}
    outputs = [each for each in described["outputs"] if plain(each)["name"] not in given]
    # in the complete spec they are behind its own
    placed = {**described, "outputs": [*(None for _ in spec.outputs), *outputs]}
    origins = [
        Origin(field=field, why=why.removeprefix(TODO))
        for field, why in comments(placed)
        if not field.endswith("publish.mode")
    ]
    return Resolved.model_validate(
        {
            "foundFor": search_digest(spec),
            "sources": found["sources"],
            "staticTables": found.get("staticTables", ()),
            "outputs": plain(outputs),
            "ignoredQueries": found.get("ignoredQueries", ()),
            "warmUp": found["window"]["warmUp"],
            "drain": found["window"]["drain"],
            "allowedLateness": found["ordering"]["allowedLateness"],
            "origins": origins[:MOST_ORIGINS],
        }
    )
