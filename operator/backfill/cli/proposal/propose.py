"""Proposes sources and outputs for a program, from its survey and the tables there are."""

from backfill.cli.proposal.name_matching import uniquely_named
from backfill.cli.proposal.proposed import Lake, Proposal
from backfill.cli.proposal.proposed_outputs import outputs_of
from backfill.cli.proposal.proposed_sources import source_of
from backfill.protocol.survey_result import Survey


def propose(survey: Survey, lake: Lake) -> Proposal:
    """The sources and outputs for a program."""
    outputs, ignored, unsolved = outputs_of(survey, lake)
    written = {output.table.value for output in outputs}
    sources = uniquely_named([source_of(each, survey, lake, written) for each in survey.inputs])
    return Proposal(survey, tuple(sources), tuple(outputs), tuple(ignored), tuple(unsolved))
