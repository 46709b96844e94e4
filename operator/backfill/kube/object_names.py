"""Names of what is stored in a cluster, including those of child SparkApplications."""

import hashlib
import re
from typing import Any, Final

from backfill.api.backfill import API_VERSION, KIND

Key = tuple[str, str]
"""Namespace and name of a Backfill."""

GROUP, VERSION = API_VERSION.split("/")
BACKFILLS: Final = "backfills"
SPLIT_ASSIGNMENTS: Final = "splitassignments"
JOB_REPORTS: Final = "jobreports"
DECISIONS: Final = "backfilldecisions"

BACKFILL_LABEL: Final = f"{GROUP}/backfill"
"""Label with the Backfill's name, on every object made for it."""
ATTEMPT_LABEL: Final = f"{GROUP}/attempt"
"""Label with the attempt's number, on a child SparkApplication and its pods."""
APPLICATION_LABEL: Final = f"{GROUP}/application"
"""Digest of the spec of production's SparkApplication that a child was made from."""
UID_LABEL: Final = f"{GROUP}/uid"
"""Label with the Backfill's uid, on the pods of an attempt. It distinguishes them from those of an
earlier Backfill of the same name.
"""
LIVE_LABEL: Final = f"{GROUP}/live"
"""Label of a live SparkApplication, which outlives the Backfill whose state it continues with."""
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "backfill-operator"
FINALIZER: Final = f"{GROUP}/cleanup"

CONTROLLER_MANAGER: Final = "backfill-operator"
"""Field manager of what the controller writes."""
CLI_MANAGER: Final = "backfill-cli"
"""Field manager of what the command line writes."""

_MOST_CHILD_PREFIX = 36
_HASH_CHARACTERS = 8


def child_name(backfill: str, attempt: int) -> str:
    """Name of the SparkApplication of an attempt. It has at most 45 characters, so that it is a DNS
    label with what Spark appends.

    It begins with a letter, as the Spark operators require; the name of a Backfill may begin with a
    digit.
    """
    return f"{_prefix(backfill)}-a{attempt}"


def is_child_name(name: str, backfill: str) -> bool:
    """Whether a name is that of one of the attempts of a Backfill."""
    return re.fullmatch(rf"{re.escape(_prefix(backfill))}-a\d+", name) is not None


def live_name(backfill: str) -> str:
    """Name of the live SparkApplication, unless the spec names it. It has the same form."""
    return f"{_prefix(backfill)}-live"


def _prefix(backfill: str) -> str:
    prefix = backfill
    if not prefix[0].isalpha() or len(prefix) > _MOST_CHILD_PREFIX:
        digest = hashlib.sha256(backfill.encode()).hexdigest()[:_HASH_CHARACTERS]
        letters = prefix if prefix[0].isalpha() else f"b-{prefix}"
        prefix = f"{letters[: _MOST_CHILD_PREFIX - _HASH_CHARACTERS - 1].rstrip('-')}-{digest}"
    return prefix


def backfill_labels(backfill: str) -> dict[str, str]:
    """Labels of every object made for a Backfill."""
    return {BACKFILL_LABEL: backfill, MANAGED_BY_LABEL: MANAGED_BY}


def attempt_labels(backfill: str, attempt: int) -> dict[str, str]:
    """Labels of every object made for an attempt."""
    return {**backfill_labels(backfill), ATTEMPT_LABEL: str(attempt)}


def owner_reference(backfill: str, uid: str) -> dict[str, Any]:
    """The owner reference that lets an object be deleted together with its Backfill."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": backfill, "uid": uid}
    return {**owner, "controller": True, "blockOwnerDeletion": True}
