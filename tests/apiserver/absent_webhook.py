"""An admission webhook that nobody answers, as that of a Spark operator that is down."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from backfill.kube.client import Cluster
from backfill.kube.resources import Resource
from waiting import eventually

WEBHOOK: Final = "away.example.com"
_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)


@contextmanager
def webhook_that_is_away(
    cluster: Cluster, namespace: str, plural: str, asked: Callable[[], object]
) -> Iterator[None]:
    """Before an object of this kind is made in the namespace, the API server must ask it.
    ``asked``: true once it does.
    """
    webhook = {
        "name": WEBHOOK,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "operations": ["CREATE"],
                "resources": [plural],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    name = f"away-{namespace}"
    cluster.create(_CONFIGURATIONS, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        eventually(asked, "the webhook is asked")
        yield
    finally:
        cluster.delete(_CONFIGURATIONS, None, name)
