"""Finds out how each query of an application would run, by running its main program in a driver on
this machine up to where its queries start.
"""

from backfill.api.backfill import Backfill
from backfill.api.spark_application import Application
from backfill.controller.driver import Launch
from backfill.controller.proposing.ask_driver import ask, check_answered
from backfill.planning.plan import plan_directory
from backfill.planning.workspace import Workspace, checkpoints
from backfill.protocol.explanation import EXPLANATION_FILE, ExplainedQuery, Explanation

_MODULE = "backfill.runtime.explain"


def explain(
    backfill: Backfill, application: Application, plan_id: str, workspace: Workspace
) -> tuple[ExplainedQuery, ...]:
    """How each query of an application would run with a plan.

    The workspace of the plan is on this machine. Nothing is written to tables.

    Raises:
        BadInput: the program cannot be run on history, or not on this machine.
        BackfillError: the program failed.
    """
    plan = plan_directory(workspace, plan_id)
    launch = Launch(1, backfill, plan_id, plan, checkpoints(workspace))
    found = ask(_MODULE, EXPLANATION_FILE, application, launch)
    answer = Explanation.model_validate_json(found)
    check_answered(answer.reason, answer.message)
    return answer.queries
