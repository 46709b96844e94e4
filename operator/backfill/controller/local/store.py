"""Stores resources without a cluster: a directory for each Backfill.

``<state>/<namespace>/<name>/`` contains ``backfill.json``, the resource with its status;
``application.json``, the application it refers to; a file for each decision of a person;
``channel/``, the messages; ``attempts/<n>/``, the files of each driver; and, unless the spec names
a workspace, ``plans/`` and ``checkpoints/``.
"""

import fcntl
import shutil
import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from backfill.api.backfill import Backfill
from backfill.api.base import Model
from backfill.api.conditions import ConditionType, find_condition
from backfill.api.decision import decision_name, next_undo, undo_name
from backfill.api.errors import BackfillError
from backfill.api.spark_application import Application
from backfill.api.spec import BackfillSpec
from backfill.api.status import BackfillStatus, DecisionStatus, Verdict
from backfill.planning.workspace import Workspace
from backfill.protocol.atomic_files import replace_file
from backfill.protocol.model_files import (
    CachedModel,
    Version,
    damaged,
    read_model,
    version_of,
)

_RESOURCE = "backfill.json"
_APPLICATION = "application.json"
_LOCK = "write.lock"


class LocalStore:
    """One Backfill on disk. Commands and the controller change different parts, and do not
    overwrite each other: commands change spec and metadata, the controller the status.
    """

    def __init__(self, state: Path, namespace: str, name: str):
        self.namespace = namespace
        self.name = name
        self.directory = state.absolute() / namespace / name
        self._state = state
        self._resource = CachedModel(self.directory / _RESOURCE, Backfill)

    @property
    def channel(self) -> Path:
        """Directory of the messages between controller and driver."""
        return self.directory / "channel"

    @property
    def attempts(self) -> Path:
        """Directory of the drivers' logs."""
        return self.directory / "attempts"

    def workspace(self, spec: BackfillSpec) -> Workspace:
        """Location of plan and checkpoints."""
        if spec.workspace is None:
            return Workspace(str(self.directory), own=f"{self.namespace}/{self.name}")
        return Workspace.below(spec.workspace, spec.workspace_catalog, self.namespace, self.name)

    def version(self) -> Version:
        """Version of the resource's file, which changes with every change of the resource."""
        return version_of(self.directory / _RESOURCE)

    def load(self) -> Backfill | None:
        """The resource; None if there is none.

        Raises:
            BackfillError: the file is damaged, or was written by another version.
        """
        try:
            return self._resource.read()
        except ValidationError as error:
            raise damaged(self.directory / _RESOURCE, error.errors()[0]["msg"]) from error

    def writers_of(self, tables: Set[str]) -> Iterator[Backfill]:
        """Other readable Backfills of the state directory
        that have an output in one of the tables.
        """
        for store in stored(self._state):
            with suppress(BackfillError, OSError):
                other = store.load() if store.directory != self.directory else None
                if other is not None and not tables.isdisjoint(
                    output.table for output in other.spec.outputs
                ):
                    yield other

    def application(self) -> Application:
        """The application as it was when the Backfill was created."""
        return read_model(self.directory / _APPLICATION, Application)

    def create(self, backfill: Backfill, application: Application) -> None:
        """Stores a new resource.

        The application is written first, so that it exists whenever the resource does.
        """
        metadata = backfill.metadata.model_copy(
            update={"uid": str(uuid.uuid4()), "kept_in": self._place}
        )  # what a manifest says of them belongs to another object
        with self._writing():
            self._write(_APPLICATION, application)
            self._write(_RESOURCE, backfill.model_copy(update={"metadata": metadata}))

    @property
    def _place(self) -> str:
        """The state directory. Its machine does not count: containers that run a Backfill one after
        the other have another name each time.
        """
        return f"the state directory {self._state.resolve()}"

    def apply(self, spec: BackfillSpec, application: Application) -> None:
        """Replaces spec and application."""
        with self._writing():
            self._write(_APPLICATION, application)
            self._update(lambda old: _wanted(old, spec))

    def suspend(self) -> None:
        """Sets ``suspend``."""
        with self._writing():
            self._update(lambda old: _wanted(old, old.spec.model_copy(update={"suspend": True})))

    def resume(self) -> None:
        """Removes ``suspend``."""
        with self._writing():
            self._update(lambda old: _wanted(old, old.spec.model_copy(update={"suspend": False})))

    def decide(self, decision: DecisionStatus) -> None:
        """Stores a person's decision. Only the first one about a result counts."""
        file = f"{_name_of(decision.result, decision.decision, decision.number)}.json"
        with self._writing():
            if not (self.directory / file).exists():
                self._write(file, decision)

    def decisions(self, backfill: Backfill) -> tuple[DecisionStatus, ...]:
        """What people have decided about the present result."""
        status = backfill.status
        if status.result is None:
            return ()
        names = (
            _name_of(status.result, Verdict.APPROVE, 1),
            _name_of(status.result, Verdict.UNDO, next_undo(status)),
        )
        paths = (self.directory / f"{name}.json" for name in names)
        return tuple(read_model(path, DecisionStatus) for path in paths if path.exists())

    def request_deletion(self) -> None:
        """Marks the resource for deletion; the controller then
        removes what was made for it, and the resource.
        """
        now = datetime.now(UTC)
        with self._writing():
            self._update(
                lambda old: _with_metadata(
                    old, deletion_timestamp=old.metadata.deletion_timestamp or now
                )
            )

    def write_status(self, status: BackfillStatus) -> None:
        """Replaces the status, leaving spec and metadata as they are now."""
        with self._writing():
            self._update(lambda old: old.model_copy(update={"status": status}))

    def delete(self) -> None:
        """Removes the directory.

        The resource's file goes first, so that the rest is not taken for a new Backfill.
        """
        (self.directory / _RESOURCE).unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _update(self, change: Callable[[Backfill], Backfill]) -> None:
        old = self.load()
        if old is None:
            raise BackfillError(f"backfill {self.name} no longer exists in {self.directory.parent}")
        new = change(old)
        if new != old:
            self._write(_RESOURCE, new)

    def _write(self, name: str, model: Model) -> None:
        replace_file(
            self.directory / name,
            model.model_dump_json(by_alias=True, exclude_none=True, indent=2).encode(),
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A lock around reading, changing and writing, so that no change is lost."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def stored(state: Path) -> list[LocalStore]:
    """All Backfills of a state directory, by namespace and name."""
    paths = sorted(state.glob(f"*/*/{_RESOURCE}"))
    return [LocalStore(state, path.parent.parent.name, path.parent.name) for path in paths]


def _wanted(old: Backfill, spec: BackfillSpec) -> Backfill:
    """The Backfill with this spec. Its generation rises if the spec has changed, and also if it has
    failed and is to be retried.
    """
    outcome = find_condition(old.status.conditions, ConditionType.SUCCEEDED)
    failed = outcome is not None and outcome.status == "False"
    nonce = uuid.uuid4().hex if failed else spec.retry_nonce or old.spec.retry_nonce
    spec = spec.model_copy(update={"retry_nonce": nonce})
    if spec == old.spec:
        return old
    return _with_metadata(
        old.model_copy(update={"spec": spec}), generation=old.metadata.generation + 1
    )


def _with_metadata(old: Backfill, **fields: object) -> Backfill:
    return old.model_copy(update={"metadata": old.metadata.model_copy(update=fields)})


def _name_of(result: str, verdict: Verdict, number: int) -> str:
    return undo_name(result, number) if verdict is Verdict.UNDO else decision_name(result)
