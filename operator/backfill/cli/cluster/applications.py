"""The production SparkApplication that a Backfill refers to."""

from backfill.api.backfill import ApplicationRef
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.problems import did_you_mean
from backfill.cli.cluster.place import Place
from backfill.controller.kubernetes.errors import ClusterError, KindMissing
from backfill.controller.kubernetes.resources import Manifest, Resource

_PLURAL = "sparkapplications"


def production(place: Place, namespace: str, reference: ApplicationRef) -> Manifest:
    """The SparkApplication as it is in the cluster.

    Raises:
        BadInput: there is none.
    """
    group, _, version = reference.api_version.partition("/")
    resource = Resource(group, version, _PLURAL)
    try:
        found = place.cluster.get(resource, namespace, reference.name)
    except KindMissing as error:
        raise BackfillError(
            f"this cluster knows no SparkApplication of {reference.api_version}: is its operator installed?"
        ) from error
    if found is None:
        missing = f'there is no SparkApplication "{reference.name}" in namespace {namespace}'
        raise BadInput(
            Problem("spec.applicationRef.name", missing, did_you_mean(reference.name, _names(place, resource, namespace)))
        )
    return {"apiVersion": reference.api_version, "kind": "SparkApplication"} | found


def _names(place: Place, resource: Resource, namespace: str) -> list[str]:
    try:
        return [found["metadata"]["name"] for found in place.cluster.list(resource, namespace).items]
    except ClusterError:
        return []
