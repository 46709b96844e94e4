"""One Backfill on a cluster, read from a cache and written to the API server."""

from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from datetime import UTC, datetime

from pydantic import ValidationError

from backfill.api.backfill import API_VERSION, KIND, Backfill, ObjectMeta, unread
from backfill.api.decision import (
    BackfillDecision,
    as_recorded,
    decision_name,
    next_undo,
    undo_name,
)
from backfill.api.errors import BadInput, ConflictError, InvalidManifest, Problem
from backfill.api.manifests.problems import problems_of, read_json
from backfill.api.manifests.spec_rules import check_spec
from backfill.api.quantities import parse_time
from backfill.api.spec import BackfillSpec
from backfill.api.status import BackfillStatus, DecisionStatus
from backfill.controller.decisions.invalid_spec import refused
from backfill.kube.cache import Cache, uid_of, version_of
from backfill.kube.client import Cluster
from backfill.kube.object_names import CONTROLLER_MANAGER, FINALIZER, Key
from backfill.kube.request_errors import NotFound
from backfill.kube.resources import BACKFILL, Manifest
from backfill.planning.workspace import Workspace

OnStatus = Callable[[Backfill, BackfillStatus], None]
"""Called after each write of a status with the Backfill as it was before, and the new status."""


class KubernetesStore:
    """One Backfill. Another one that is created under the same name does not count.

    Writes are bound to the version that was loaded last. A write that fails because of a newer
    version reads it, so that the next reconcile sees it even if a watch is late.
    """

    def __init__(
        self,
        cluster: Cluster,
        backfills: Cache,
        key: Key,
        uid: str,
        *,
        decisions: Cache | None = None,
        names_are_verified: bool = False,
        default_workspace: str | None = None,
        kept_in: str = "",
        on_status: OnStatus = lambda before, after: None,
    ):
        """Keeps what is needed. ``names_are_verified``: whether the API server checks who decides.
        ``default_workspace`` is for Backfills that name none.
        ``kept_in`` is the cluster, in words.
        """
        self._cluster = cluster
        self._backfills = backfills
        self._namespace, self._name = key
        self._uid = uid
        self._decisions = decisions
        self._names_are_verified = names_are_verified
        self._default_workspace = default_workspace
        self._kept_in = kept_in
        self._on_status = on_status
        self._raw: Manifest | None = None
        self._parsed: Backfill | None = None

    def load(self) -> Backfill | None:
        """The resource; None if it no longer exists, or its finalizer was removed.

        Raises:
            BadInput: it cannot be handled as it is; :meth:`refuse` reports that on the resource.
        """
        raw = self._current()
        if raw is None:
            self._raw = self._parsed = None
        elif self._raw is None or version_of(raw) != version_of(self._raw):
            self._raw, self._parsed = raw, None
        return self.loaded

    @property
    def loaded(self) -> Backfill | None:
        """The resource as this reconcile has loaded and written it,
        whatever watches have brought since.

        Raises:
            BadInput: as for :meth:`load`.
        """
        if self._raw is not None and self._parsed is None:
            self._parsed = self._read(self._raw)
        return self._parsed

    def workspace(self, spec: BackfillSpec) -> Workspace:
        """Location of plan and checkpoints: a part of the workspace that no other Backfill has."""
        base = spec.workspace or self._default_workspace
        if base is None:
            raise BadInput(_NO_WORKSPACE)
        return Workspace.below(base, spec.workspace_catalog, self._namespace, self._name)

    def writers_of(self, tables: Set[str]) -> Iterator[Backfill]:
        """Other Backfills known to this operator that have an output in one of the tables."""
        known = self._backfills.keys()
        for raw in (self._backfills.get(*key) for key in known):
            if (
                raw is not None
                and uid_of(raw) != self._uid
                and not tables.isdisjoint(_output_tables(raw))
            ):
                with suppress(ValidationError):
                    yield read_json(Backfill, raw)

    def decisions(self, backfill: Backfill) -> tuple[DecisionStatus, ...]:
        """What people have decided about the present result. Unreadable decisions do not count."""
        result = backfill.status.result
        if result is None or self._decisions is None:
            return ()
        number = next_undo(backfill.status)
        names = ((decision_name(result), 1), (undo_name(result, number), number))
        found = (self._decision(name, number) for name, number in names)
        return tuple(each for each in found if each is not None and each.result == result)

    def _decision(self, name: str, number: int) -> DecisionStatus | None:
        raw = self._decisions.get(self._namespace, name) if self._decisions is not None else None
        if raw is None or raw["spec"].get("backfill") != self._name:
            return None
        with suppress(ValidationError):
            spec = read_json(BackfillDecision, raw).spec
            at = parse_time(raw["metadata"]["creationTimestamp"])
            return as_recorded(spec, at, verified=self._names_are_verified, number=number)
        return None

    def write_status(self, status: BackfillStatus) -> None:
        """Writes the status if it has changed. The finalizer is set first, since objects are
        created only after a status was written.

        Raises:
            ConflictError: the resource has changed since it was loaded, or no longer exists.
        """
        before = self.loaded
        if before is None:
            raise ConflictError(f"{self._where} is not loaded")
        if status == before.status:
            return
        self.ensure_finalizer()
        self._apply_status(status.to_manifest())
        self._on_status(before, status)

    def ensure_finalizer(self) -> None:
        """Sets the finalizer, which keeps the resource
        until everything that was made for it is removed.

        Raises:
            ConflictError: the resource has changed since it was loaded, or no longer exists.
        """
        if self._raw is None:
            raise ConflictError(f"{self._where} is not loaded")
        metadata = self._raw["metadata"]
        finalizers = metadata.get("finalizers", [])
        if FINALIZER not in finalizers and "deletionTimestamp" not in metadata:
            self._write_finalizers([*finalizers, FINALIZER])

    def delete(self) -> None:
        """Removes the finalizer. The resource is then deleted, unless it has finalizers of others.

        Raises:
            ConflictError: the resource has changed since it was loaded.
        """
        raw = self._raw or self._current()
        if raw is None:
            return
        self._raw = raw
        finalizers = raw["metadata"].get("finalizers", [])
        if FINALIZER in finalizers:
            self._write_finalizers(
                [finalizer for finalizer in finalizers if finalizer != FINALIZER]
            )
        if "deletionTimestamp" in raw["metadata"] and not self._raw["metadata"].get("finalizers"):
            self._backfills.forget(self._raw)

    def refuse(self, error: BadInput) -> None:
        """Reports on the resource that it cannot be handled, and why. If it is being deleted, its
        finalizer is removed: without a readable spec, it is unknown what was made for it.

        Raises:
            ConflictError: the resource has changed since it was loaded, or no longer exists.
        """
        raw = self._raw
        if raw is None:
            return
        if "deletionTimestamp" in raw["metadata"]:
            self.delete()
            return
        metadata = read_json(ObjectMeta, raw["metadata"])
        recorded = _readable_status(raw)
        status = refused(metadata, recorded, error.problems, datetime.now(UTC))
        if status == recorded:
            return
        said = {
            key: value for key, value in status.to_manifest().items() if key in _SAID_BY_A_REFUSAL
        }
        self._apply_status(
            {key: value for key, value in raw.get("status", {}).items() if key != "specDigest"}
            | said
        )
        self._on_status(unread(metadata, recorded), status)

    @property
    def _where(self) -> str:
        return f"backfill {self._namespace}/{self._name}"

    def _current(self) -> Manifest | None:
        raw = self._backfills.get(self._namespace, self._name)
        if raw is None or uid_of(raw) != self._uid:
            return None
        metadata = raw["metadata"]
        let_go = "deletionTimestamp" in metadata and FINALIZER not in metadata.get("finalizers", [])
        return None if let_go else raw

    def _read(self, raw: Manifest) -> Backfill:
        try:
            backfill = read_json(Backfill, raw)
        except ValidationError as error:
            raise InvalidManifest(problems_of(error, Backfill)) from None
        metadata = backfill.metadata.model_copy(update={"kept_in": self._kept_in})
        backfill = backfill.model_copy(update={"metadata": metadata})
        status, deleted = backfill.status, backfill.metadata.deletion_timestamp is not None
        if status.plan_id is None and not deleted:
            problems = check_spec(backfill.spec)
            try:
                self.workspace(backfill.spec)
            except BadInput as error:
                problems += error.problems
            if problems:
                raise InvalidManifest(problems)
        return backfill

    def _apply_status(self, status: Manifest) -> None:
        self._write(
            lambda raw: self._cluster.apply(
                BACKFILL,
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "metadata": _exactly(raw),
                    "status": status,
                },
                manager=CONTROLLER_MANAGER,
                subresource="status",
            )
        )

    def _write_finalizers(self, finalizers: list[str]) -> None:
        self._write(
            lambda raw: self._cluster.merge(
                BACKFILL,
                self._namespace,
                self._name,
                {"metadata": {**_exactly(raw), "finalizers": finalizers}},
                manager=CONTROLLER_MANAGER,
            )
        )

    def _write(self, write: Callable[[Manifest], Manifest]) -> None:
        """Writes the resource and keeps the answer,
        so that the next write of this reconcile is bound to it.
        """
        if self._raw is None:
            raise ConflictError(f"{self._where} is not loaded")
        try:
            written = write(self._raw)
        except NotFound as error:
            self._refresh()
            raise ConflictError(f"{self._where} is gone") from error
        except ConflictError:
            self._refresh()
            raise
        self._raw, self._parsed = written, None
        self._backfills.put(written)

    def _refresh(self) -> None:
        found = self._cluster.get(BACKFILL, self._namespace, self._name)
        if found is not None:
            self._backfills.put(found)
        elif self._raw is not None:
            self._backfills.forget(self._raw)


_SAID_BY_A_REFUSAL = ("conditions", "observedGeneration", "finishedAt")
_NO_WORKSPACE = Problem(
    "spec.workspace",
    "is missing, and the operator has no default",
    "set an object store prefix that all pods can reach",
)


def _output_tables(raw: Manifest) -> Iterator[str]:
    return (output["table"] for output in raw["spec"].get("outputs", ()))


def _exactly(raw: Manifest) -> Manifest:
    """Metadata that binds a write to one version of one object."""
    return {name: raw["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}


def _readable_status(raw: Manifest) -> BackfillStatus:
    """The status, or at least its conditions if another version of the operator has written it."""
    status = raw.get("status", {})
    for readable in (status, {"conditions": status.get("conditions", [])}):
        with suppress(ValidationError):
            return read_json(BackfillStatus, readable)
    return BackfillStatus()
