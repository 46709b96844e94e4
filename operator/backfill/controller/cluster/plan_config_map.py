"""What stays of a plan in the cluster: its header, and production's SparkApplication as it was when
the plan was made.

Both are in the ConfigMap ``<backfill>-plan``, compressed, which the Backfill owns. To see them::

    kubectl get configmap july-plan -o jsonpath='{.binaryData.plan\\.json\\.gz}' | base64 -d |
    gunzip
"""

import base64
import hashlib
import json
import logging
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput, PlanCorrupt, Problem, first_line
from backfill.api.job_report import MOST_RESULT_BYTES
from backfill.api.json_text import read_json_text
from backfill.api.quantities import count
from backfill.controller.cluster.production import read_production
from backfill.kube.cache import owner_uid
from backfill.kube.client import Cluster
from backfill.kube.object_names import (
    CONTROLLER_MANAGER,
    GROUP,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    backfill_labels,
    owner_reference,
)
from backfill.kube.packed_json import compressed, is_readable, packed, read_packed, unpacked
from backfill.kube.resources import CONFIG_MAP, Manifest
from backfill.planning.plan import HEADER_FILE, PlanHeader, header_digest

_LOG = logging.getLogger(__name__)
HEADER_KEY: Final = f"{HEADER_FILE}.gz"
APPLICATION_KEY: Final = "application.json.gz"
MOST_BYTES: Final = MOST_RESULT_BYTES
"""Limit of both together, compressed. Kubernetes accepts a mebibyte in a ConfigMap."""
_TUNING = f"{GROUP}/tuning"
"""Annotation that identifies the overrides for which production's application was recorded."""
_MOST_APPLICATION = 2 * 2**20
"""Most characters of the application. The API server accepts no object of that length."""
_UNREADABLE = (ValueError, LookupError, TypeError)
_KEPT_METADATA = ("name", "namespace", "uid", "generation", "labels", "annotations")


def config_map_name(backfill: str) -> str:
    """Name of the ConfigMap of a Backfill's plan."""
    return f"{backfill}-plan"


class KubernetesPlans:
    """The plan header of one Backfill. It is read once and kept, since plans never change."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._header: PlanHeader | None = None

    def header(self, backfill: Backfill) -> PlanHeader | None:
        """The header of the plan that the status names; None if it names none.

        Raises:
            PlanCorrupt: it no longer exists, or is damaged.
            ClusterError: a request failed.
        """
        plan_id = backfill.status.newest_plan_id
        if plan_id is None:
            return None
        if self._header is None or self._header.inputs.own_id() != plan_id:
            self._header = self._read(backfill, plan_id)
        return self._header

    def keep(self, backfill: Backfill, header: PlanHeader) -> str:
        """Stores the header and, for a new plan, production's SparkApplication as it is now. If a
        lost header is stored again, the application that is still stored is kept. Returns the
        application's digest; empty if there is none.

        Raises:
            BadInput: the header is too large for a cluster, or an object of another owner has the
                ConfigMap's name.
            BackfillError: the plan is new and the SparkApplication no longer exists; the next
                reconcile waits for it.
            ClusterError: a request failed.
        """
        content = {HEADER_KEY: compressed(header.to_json())}
        application, digest = application_of(self._cluster, backfill), ""
        if not isinstance(application, Problem):
            content[APPLICATION_KEY] = packed(_without_history(application))
            digest = header_digest(unpacked(content[APPLICATION_KEY]))
        elif backfill.status.plan_id is None:
            raise BackfillError(str(application))
        size = sum(map(len, content.values()))
        if size > MOST_BYTES or not is_readable(content[HEADER_KEY]):
            raise BadInput(_too_large(header, size))
        self._require_name(backfill)
        metadata = backfill.metadata
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": config_map_name(metadata.name),
                "namespace": metadata.namespace,
                "labels": backfill_labels(metadata.name),
                "annotations": {_TUNING: _tuning(backfill)},
                "ownerReferences": [owner_reference(metadata.name, metadata.uid)],
            },
            "binaryData": {key: _encoded(value) for key, value in content.items()},
        }
        self._cluster.apply(CONFIG_MAP, manifest, manager=CONTROLLER_MANAGER)
        self._header = header
        return digest

    def _require_name(self, backfill: Backfill) -> None:
        """Takes over the ConfigMap of an earlier Backfill of this name,
        but not one of another owner.
        """
        metadata = backfill.metadata
        name = config_map_name(metadata.name)
        there = self._cluster.get(CONFIG_MAP, metadata.namespace, name)
        if there is None or owner_uid(there) == metadata.uid:
            return
        if there["metadata"].get("labels", {}).get(MANAGED_BY_LABEL) != MANAGED_BY:
            message = (
                f"ConfigMap {metadata.namespace}/{name} already exists and does not belong to this"
                " Backfill, whose plan requires that name"
            )
            fix = "delete it and retry, or give the Backfill another name"
            raise BadInput(Problem("metadata.name", message, fix))

    def _read(self, backfill: Backfill, plan_id: str) -> PlanHeader:
        name = f"ConfigMap {backfill.metadata.namespace}/{config_map_name(backfill.metadata.name)}"
        kept = _config_map(self._cluster, backfill)
        if kept is None:
            raise PlanCorrupt(
                f"the header of plan {plan_id} is lost: {name} does not exist, or belongs to"
                " another Backfill"
            )
        try:
            content, planned = _content(kept, HEADER_KEY), backfill.status.plan_digest
            header = read_packed(content, lambda text: _header(text, planned))
        except _UNREADABLE as error:
            raise PlanCorrupt(
                f"the header of plan {plan_id} in {name} cannot be read: {first_line(error)}"
            ) from error
        if (header.plan_id, header.inputs.own_id()) != (header.inputs.plan_id(), plan_id):
            raise PlanCorrupt(
                f"{name} contains plan {header.plan_id} of inputs {header.inputs.own_id()}, not"
                f" plan {plan_id}"
            )
        return header


def application_of(cluster: Cluster, backfill: Backfill) -> Manifest | Problem:
    """The SparkApplication that attempts and job pods are made from, or why there is none. Once a
    driver has read something, it is production's as it was when that driver was made, because later
    attempts continue from the state of earlier ones.

    Raises:
        ClusterError: a request failed.
    """
    has_read = backfill.status.watermark is not None
    kept = kept_application(cluster, backfill) if has_read else None
    return kept or read_production(cluster, backfill)


def kept_application(
    cluster: Cluster, backfill: Backfill, *, as_tuned: bool = True
) -> Manifest | None:
    """Production's SparkApplication as it was when an attempt was last made from it, so that
    changes to production do not affect a Backfill in progress. None if none was stored, if it is
    not the one that the status has the digest of, since whoever may edit ConfigMaps need not be
    allowed to choose what runs, or if ``overrides`` or ``retryNonce`` have changed since, which
    asks for attempts that differ (``as_tuned``).

    Raises:
        ClusterError: a request failed.
    """
    kept = _config_map(cluster, backfill)
    tuning = _tuning(backfill)
    if kept is None:
        return None
    if as_tuned and kept["metadata"].get("annotations", {}).get(_TUNING, tuning) != tuning:
        return None
    try:
        text = unpacked(_content(kept, APPLICATION_KEY), _MOST_APPLICATION)
        if header_digest(text) != backfill.status.application_digest:
            raise ValueError("it differs from the one that was stored with the plan")
        application: Manifest = read_json_text(text)
    except _UNREADABLE as error:
        _LOG.warning(
            "the SparkApplication in ConfigMap %s of %s is not used: %s",
            config_map_name(backfill.metadata.name),
            backfill.metadata.namespace,
            first_line(error),
        )
        return None
    return application


def _header(text: bytes, planned: str) -> PlanHeader:
    if header_digest(text) != planned:
        raise ValueError("it differs from the one that was planned")
    return PlanHeader.model_validate_json(text)


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _content(config_map: Manifest, key: str) -> bytes:
    return base64.b64decode(config_map["binaryData"][key])


def _config_map(cluster: Cluster, backfill: Backfill) -> Manifest | None:
    """The ConfigMap, if it belongs to this Backfill."""
    metadata = backfill.metadata
    found = cluster.get(CONFIG_MAP, metadata.namespace, config_map_name(metadata.name))
    return found if found is not None and owner_uid(found) == metadata.uid else None


def _tuning(backfill: Backfill) -> str:
    """A text that changes when a person wants attempts to differ."""
    spec = backfill.spec
    wanted = {"overrides": spec.overrides.to_manifest(), "retryNonce": spec.retry_nonce}
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]


def _without_history(production: Manifest) -> Manifest:
    """The application without managed fields and status."""
    metadata = {
        key: value for key, value in production["metadata"].items() if key in _KEPT_METADATA
    }
    return {key: production[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": metadata}


def _too_large(header: PlanHeader, size: int) -> Problem:
    message = (
        f"the plan has {count(header.steps, 'step')} of {count(len(header.sources), 'source')};"
        f" its compressed header has {size:,} bytes, more than the {MOST_BYTES:,} that fit into a"
        " ConfigMap"
    )
    return Problem(
        "",
        message,
        "raise maxMisalignment or planning.targetStepBytes,"
        " or divide the window among several Backfills",
    )
