"""What the branch of an output table is called that holds a result until it is published."""

_UNNAMED = "default"
"""The namespace of a Backfill that names none."""


def result_branch(namespace: str, backfill: str) -> str:
    """The branch of a Backfill: no other one of the cluster or of the state directory has the same."""
    return f"backfill/{backfill}" if namespace == _UNNAMED else f"backfill/{namespace}/{backfill}"
