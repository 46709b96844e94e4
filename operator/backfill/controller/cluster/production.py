"""The production SparkApplication, and what prevents a Backfill from being run with it."""

from collections.abc import Iterator
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput, Problem
from backfill.controller.children.child_manifests import (
    child_manifests,
    child_problems,
    dialect,
    preview_launch,
)
from backfill.controller.children.live_manifests import deploys, name_of_live
from backfill.kube.client import Cluster
from backfill.kube.object_names import CONTROLLER_MANAGER
from backfill.kube.request_errors import (
    QUOTA,
    AlreadyExists,
    ClusterError,
    Faltering,
    Forbidden,
    KindMissing,
    NamespaceEnding,
    Refused,
)
from backfill.kube.resources import SPARK_APPLICATION, Manifest, Resource

_SCHEDULED: Final = Resource(
    SPARK_APPLICATION.group, SPARK_APPLICATION.version, "scheduledsparkapplications"
)
_FIELD = "spec.applicationRef"


def read_production(cluster: Cluster, backfill: Backfill) -> Manifest | Problem:
    """The production SparkApplication that a Backfill refers to, or why there is none.

    Raises:
        ClusterError: a request failed.
    """
    reference, namespace = backfill.spec.application_ref, backfill.metadata.namespace
    try:
        resource = dialect(reference.api_version).resource
        production = cluster.get(resource, namespace, reference.name)
    except BadInput as error:
        return error.problems[0]
    except Forbidden as error:
        return Problem(_FIELD, str(error), may_pass=True)
    except KindMissing:
        message = f"the cluster has no SparkApplications of {reference.api_version}"
        return Problem(
            f"{_FIELD}.apiVersion",
            message,
            "install the Spark operator, or set the API version that the installed one serves",
        )
    if production is not None:
        return production
    if _is_scheduled(cluster, resource, namespace, reference.name):
        message = f'"{reference.name}" is a ScheduledSparkApplication, which cannot be rerun'
        return Problem(
            f"{_FIELD}.name",
            message,
            "create a suspended SparkApplication from its spec.template, and refer to that one",
        )
    message = f'there is no SparkApplication "{reference.name}" in namespace {namespace}'
    return Problem(
        f"{_FIELD}.name",
        message,
        "refer to a production application in this namespace",
        may_pass=True,
    )


def obstacles_of(
    cluster: Cluster,
    backfill: Backfill,
    production: Manifest | Problem,
    default_workspace: str | None,
) -> list[Problem]:
    """Everything that is known to prevent an attempt with ``production``, or the problem that
    stands in for it. Asks the API server whether it would accept the attempt.

    Raises:
        ClusterError: a request failed.
    """
    if isinstance(production, Problem):
        return [production]
    return child_problems(backfill, production, default_workspace) or [
        *_refusals(cluster, backfill, production, default_workspace),
        *_live_refusals(cluster, backfill, production),
    ]


def name_taken(name: str) -> Problem:
    """The problem of a live application whose name is taken."""
    return Problem(
        "spec.handOff.name",
        f"SparkApplication {name} already exists and does not belong to this Backfill",
        "use another name for the live application, or delete the existing one",
    )


def _is_scheduled(cluster: Cluster, resource: Resource, namespace: str, name: str) -> bool:
    """Whether it is a ScheduledSparkApplication. Used only for a better message, so a failed
    request does not matter.
    """
    if resource != SPARK_APPLICATION:
        return False
    try:
        return cluster.get(_SCHEDULED, namespace, name) is not None
    except ClusterError:
        return False


def _refusals(
    cluster: Cluster, backfill: Backfill, production: Manifest, default_workspace: str | None
) -> Iterator[Problem]:
    """Why definitions, webhooks or permissions refuse the child. Quotas are left out, since there
    may be room later.
    """
    child = child_manifests(preview_launch(backfill, default_workspace), production)[1]
    try:
        cluster.create(
            dialect(production["apiVersion"]).resource,
            child,
            manager=CONTROLLER_MANAGER,
            dry_run=True,
        )
    except AlreadyExists:
        return
    except (Forbidden, KindMissing, NamespaceEnding, Refused) as error:
        if QUOTA not in str(error):
            fix = "correct the overrides or the SparkApplication, or grant the missing permission"
            yield Problem("", f"the API server rejects the child SparkApplication: {error}", fix)
    except Faltering as error:
        fix = "check the Spark operator's webhook and the API server's log"
        yield Problem(
            "",
            f"the API server cannot check the child SparkApplication: {error}",
            fix,
            may_pass=True,
        )


def _live_refusals(cluster: Cluster, backfill: Backfill, production: Manifest) -> Iterator[Problem]:
    """Why there could be no live application, which is asked before history is read: its name is
    taken, or the API server refuses it.
    """
    if not deploys(backfill) or (backfill.status.hand_off and backfill.status.hand_off.application):
        return
    kind, name = dialect(production["apiVersion"]), name_of_live(backfill)
    try:
        cluster.create(
            kind.resource,
            kind.live(production, backfill),
            manager=CONTROLLER_MANAGER,
            dry_run=True,
        )
    except AlreadyExists:
        yield name_taken(name)
    except (Forbidden, KindMissing, NamespaceEnding, Refused) as error:
        if QUOTA not in str(error):
            yield Problem(
                "spec.handOff",
                f"the API server rejects the live SparkApplication {name}: {error}",
                "correct handOff.overrides or the SparkApplication, or grant the missing"
                " permission",
            )
    except Faltering as error:
        yield Problem(
            "spec.handOff",
            f"the API server cannot check the live SparkApplication {name}: {error}",
            "check the Spark operator's webhook and the API server's log",
            may_pass=True,
        )
