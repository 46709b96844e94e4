"""Names of the branches of output tables that hold results until they are published."""

_UNNAMED = "default"
"""Namespace of a Backfill that names none."""


def result_branch(namespace: str, backfill: str) -> str:
    """The branch of a Backfill, unique in the cluster or the state directory."""
    return f"backfill/{backfill}" if namespace == _UNNAMED else f"backfill/{namespace}/{backfill}"
