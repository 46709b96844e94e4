"""What each ordering policy allows: how far rows may reach beyond their step, and what the proof
of a plan has to show. Pure.

``Strict`` orders rows within steps as well: :mod:`backfill.planning.strict_order`.
"""

from backfill.api.errors import BackfillError
from backfill.api.spec import OrderingPolicy
from backfill.iceberg.timestamp_units import ticks_of
from backfill.planning.plan import PlanInputs, Proof
from backfill.planning.step_boundaries import ANY_REACH_US, StepLimits


def step_limits(inputs: PlanInputs) -> StepLimits:
    """The limits of the plan's steps."""
    finer = any(
        ticks_of(source.timestamp_type, source.timestamp_unit).finer_than_us
        for source in inputs.sources
    )
    reach = {
        OrderingPolicy.WITHIN_LATENESS: inputs.allowed_lateness_us - finer,
        OrderingPolicy.EXACT: -1,
        OrderingPolicy.STRICT: -1,
        OrderingPolicy.UNORDERED: ANY_REACH_US,
    }[inputs.policy]
    return StepLimits(
        max(inputs.max_misalignment_us // 2, 1), inputs.target_step_bytes, reach, inputs.read_end_us
    )


def check_promises(proof: Proof, inputs: PlanInputs) -> None:
    """Checks the promises of a plan, which never fails unless planning has a defect.

    Raises:
        BackfillError: a promise is broken; with the numbers.
    """
    if inputs.policy is OrderingPolicy.UNORDERED:
        return
    lateness = 0 if inputs.policy is OrderingPolicy.EXACT else inputs.allowed_lateness_us
    if proof.greatest_disorder_us > lateness:
        raise BackfillError(
            f"the plan is wrong: disorder {proof.greatest_disorder_us} µs, allowed {lateness} µs"
        )
    limit = inputs.max_misalignment_us + lateness
    if proof.greatest_misalignment_us > limit:
        raise BackfillError(
            f"the plan is wrong: misalignment {proof.greatest_misalignment_us} µs,"
            f" allowed {limit} µs"
        )
