"""An API server in memory: versions, conflicts, finalizers, owners, watches; and its client, whose
requests may fail, or lose their answer.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from virtual_time import World

from backfill.api.errors import ConflictError
from backfill.kube.client import Cluster
from backfill.kube.request_errors import (
    AlreadyExists,
    KindMissing,
    NotFound,
    Refused,
    Unreachable,
)
from backfill.kube.resources import LEASE, POD, SPARK_APPLICATION, Manifest, Resource
from backfill.kube.transport import Call

NAMESPACE = "team"
_READS = ("get", "list", "watch")
_GRACE_SECONDS = 30
_NOT_FOUND = 404


class Killed(BaseException):
    """The process that made a request was killed during it."""


@dataclass(frozen=True)
class Written:
    """A write that has taken effect."""

    actor: str
    resource: Resource
    before: Manifest | None
    after: Manifest | None
    """None: the object is gone."""

    @property
    def changes_nothing(self) -> bool:
        return self.before is not None and self.before == self.after


def copied(value: Any) -> Any:
    """A copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [copied(each) for each in value]
    return value


class SimulatedApiServer:
    """The objects of one namespace. They are never changed, only replaced by new versions."""

    def __init__(self, world: World):
        self._world = world
        self._objects: defaultdict[str, dict[str, Manifest]] = defaultdict(dict)
        self._events: defaultdict[str, list[tuple[str, Manifest]]] = defaultdict(list)
        self._versions = count(100)
        self._uids = count(1)
        self.version = 100
        self.away_until = 0.0
        """Until when it does not answer operators."""
        self.listeners: list[Callable[[Written], None]] = []
        """Called after each write."""
        self.ends_pod: Callable[[str, int | None], bool] = lambda name, grace: True
        """Called when a pod is to end; whether it is gone at once."""

    def get(self, resource: Resource, name: str) -> Manifest | None:
        """An object as it is, which must not be changed."""
        return self._objects[resource.plural].get(name)

    def all(self, resource: Resource) -> list[Manifest]:
        """All objects of a kind, which must not be changed."""
        return list(self._objects[resource.plural].values())

    def events(self, resource: Resource) -> list[tuple[str, Manifest]]:
        """All events of a kind since the beginning."""
        return self._events[resource.plural]

    def answer(self, call: Call, actor: str) -> Manifest:
        """Answers a request.

        Raises:
            ClusterError: the request is refused.
            ConflictError: the object has another version.
        """
        if call.resource.group == "spark.apache.org":
            raise KindMissing("the API server serves no sparkapplications of that group")
        match call.verb:
            case "get":
                found = self._found(call)
                return found if call.resource == LEASE else copied(found)
            case "list":
                items = [each for each in self.all(call.resource) if is_selected(call, each)]
                return {
                    "kind": "List",
                    "metadata": {"resourceVersion": str(self.version)},
                    "items": items,
                }
            case "create":
                return self._create(call, actor)
            case "patch":
                return self._patch(call, actor)
            case "update":
                return self._update(call, actor)
            case "delete":
                return self._delete(call, actor)
        raise AssertionError(f"nobody makes a request of verb {call.verb}")

    def create(self, resource: Resource, manifest: Manifest, actor: str) -> Manifest:
        """Creates an object for a simulated neighbour."""
        return self._create(Call("create", resource, NAMESPACE, body=manifest), actor)

    def change(
        self, resource: Resource, name: str, part: str, content: Manifest, actor: str
    ) -> None:
        """Replaces a part of an object for a simulated neighbour, if it exists."""
        old = self.get(resource, name)
        if old is not None:
            self._write(resource, old, {**old, part: content}, actor)

    def delete(self, resource: Resource, name: str, actor: str) -> None:
        """Deletes an object for a simulated neighbour, if it exists."""
        if self.get(resource, name) is not None:
            self._delete(Call("delete", resource, NAMESPACE, name), actor)

    def remove(self, resource: Resource, name: str, actor: str) -> None:
        """Removes an object from the store, and later what it owns."""
        old = self._objects[resource.plural].pop(name, None)
        if old is None:
            return
        gone = {**old, "metadata": {**old["metadata"], "resourceVersion": self._next_version()}}
        self._publish(Written(actor, resource, old, None), "DELETED", gone)
        self._collect_later(old["metadata"]["uid"])

    def _found(self, call: Call) -> Manifest:
        found = self.get(call.resource, call.name)
        if found is None:
            raise NotFound(f"cannot {call.verb} {call.where}: not found", _NOT_FOUND)
        return found

    def _create(self, call: Call, actor: str) -> Manifest:
        body = copied(call.body)
        metadata = body["metadata"]
        if self.get(call.resource, metadata["name"]) is not None:
            raise AlreadyExists(f"cannot create {call.where}: {metadata['name']} exists", 409)
        if ("dryRun", "All") in call.query:
            return body
        uid = f"uid-{next(self._uids)}"
        body["metadata"] = {
            **metadata,
            "namespace": NAMESPACE,
            "uid": uid,
            "generation": 1,
            "creationTimestamp": self._world.text_now,
        }
        made = self._write(call.resource, None, body, actor)
        for owner in metadata.get("ownerReferences", ()):
            if not self._lives(owner["uid"]):
                self._collect_later(owner["uid"])
        return made

    def _patch(self, call: Call, actor: str) -> Manifest:
        old = self.get(call.resource, call.name)
        if old is None and "apply" in call.content_type and not call.subresource:
            return self._create(call, actor)
        if old is None:
            raise NotFound(f"cannot patch {call.where}: not found", _NOT_FOUND)
        if "json-patch" in call.content_type:
            new = _edited(old, call)
        else:
            body: Any = call.body
            _check_version(old, body["metadata"], call)
            if call.subresource:
                new = {**old, call.subresource: body.get(call.subresource, {})}
            elif "merge" in call.content_type:
                kept = {k: v for k, v in body["metadata"].items() if k not in _BOUND}
                new = {**old, "metadata": {**old["metadata"], **kept}}
            else:
                bound = {k: v for k, v in old["metadata"].items() if k not in body["metadata"]}
                new = {**old, **body, "metadata": {**body["metadata"], **bound}}
        return self._write(call.resource, old, new, actor)

    def _update(self, call: Call, actor: str) -> Manifest:
        body: Any = call.body
        old = self._found(call)
        _check_version(old, body["metadata"], call)
        return self._write(call.resource, old, {**old, "spec": body["spec"]}, actor)

    def _delete(self, call: Call, actor: str) -> Manifest:
        old = self._found(call)
        options: Any = call.body or {}
        wanted = options.get("preconditions", {}).get("uid")
        if wanted not in (None, old["metadata"]["uid"]):
            raise ConflictError(f"cannot delete {call.where}: it has another uid")
        grace = options.get("gracePeriodSeconds")
        if call.resource == POD and not self.ends_pod(call.name, grace):
            gone_by = self._world.now + timedelta(
                seconds=_GRACE_SECONDS if grace is None else grace
            )
            self._mark_deleted(call.resource, old, gone_by, actor)
        elif old["metadata"].get("finalizers"):
            self._mark_deleted(call.resource, old, self._world.now, actor)
        else:
            self.remove(call.resource, call.name, actor)
        return {"kind": "Status"}

    def _mark_deleted(self, resource: Resource, old: Manifest, at: datetime, actor: str) -> None:
        if "deletionTimestamp" not in old["metadata"]:
            stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
            generation = old["metadata"]["generation"] + 1
            metadata = {**old["metadata"], "deletionTimestamp": stamp, "generation": generation}
            self._write(resource, old, {**old, "metadata": metadata}, actor)

    def _write(
        self, resource: Resource, old: Manifest | None, new: Manifest, actor: str
    ) -> Manifest:
        name = new["metadata"]["name"]
        if old is not None and new == old:
            self._tell(Written(actor, resource, old, old))
            return old
        metadata = {**new["metadata"], "resourceVersion": self._next_version()}
        if old is not None and new.get("spec") != old.get("spec"):
            metadata["generation"] = old["metadata"]["generation"] + 1
        stored = {**new, "metadata": metadata}
        if "deletionTimestamp" in metadata and metadata.get("finalizers") == [] and old is not None:
            self.remove(resource, name, actor)
            return stored
        self._objects[resource.plural][name] = stored
        kind = "ADDED" if old is None else "MODIFIED"
        self._publish(Written(actor, resource, old, stored), kind, stored)
        return stored

    def _publish(self, written: Written, kind: str, manifest: Manifest) -> None:
        self._events[written.resource.plural].append((kind, manifest))
        self._tell(written)

    def _tell(self, written: Written) -> None:
        for listener in self.listeners:
            listener(written)

    def _next_version(self) -> str:
        self.version = next(self._versions)
        return str(self.version)

    def _lives(self, uid: str) -> bool:
        return any(
            each["metadata"]["uid"] == uid
            for objects in self._objects.values()
            for each in objects.values()
        )

    def _collect_later(self, owner: str) -> None:
        seconds = self._world.later("garbage collector", (2.0, 45.0), 0.1)
        self._world.after(seconds, lambda: self._collect(owner))

    def _collect(self, owner: str) -> None:
        for plural, objects in list(self._objects.items()):
            for name, each in list(objects.items()):
                owners = each["metadata"].get("ownerReferences", ())
                if any(reference["uid"] == owner for reference in owners):
                    self.delete(_RESOURCES.get(plural, Resource("", "v1", plural)), name, "gc")


_RESOURCES = {each.plural: each for each in (POD, SPARK_APPLICATION)}
_BOUND = ("uid", "resourceVersion", "name", "namespace")


def _check_version(old: Manifest, wanted: Manifest, call: Call) -> None:
    metadata = old["metadata"]
    for field in ("uid", "resourceVersion"):
        if wanted.get(field, metadata[field]) != metadata[field]:
            raise ConflictError(f"cannot {call.verb} {call.where}: it has another {field}")


def _edited(old: Manifest, call: Call) -> Manifest:
    new = old
    operations: Any = call.body
    for operation in operations:
        path = operation["path"].strip("/").split("/")
        if operation["op"] == "test":
            found: Any = old
            for part in path:
                found = found.get(part)
            if found != operation["value"]:
                raise Refused(f"cannot patch {call.where}: a test does not fit", 422)
        else:
            new = {**new, path[0]: copied(operation["value"])}
    return new


def is_selected(call: Call, manifest: Manifest) -> bool:
    selector = dict(call.query).get("labelSelector", "")
    labels = manifest["metadata"].get("labels", {})
    for requirement in filter(None, selector.split(",")):
        name, unequal, value = requirement.partition("!=")
        if unequal:
            if labels.get(name) == value:
                return False
            continue
        name, equal, value = requirement.partition("=")
        if name not in labels or (equal and labels[name] != value):
            return False
    return True


class SimulatedCluster(Cluster):
    """The client of one process. Its requests go to the simulated API server."""

    def __init__(self, transport: "SimulatedTransport"):
        # without a configuration, connections or a limit of the rate
        self.namespace = NAMESPACE
        self._transport: Any = transport
        self.__dict__["identity"] = "the simulated cluster"

    def _object(self, call: Call) -> Manifest:
        answer: Manifest = self._transport.answer(call)
        return answer


FATES = (
    "answers",
    "fails before it takes effect",
    "takes effect, and its answer is lost",
    "takes effect, and is repeated because its answer is lost",
    "the process is killed before it",
    "the process is killed after it",
    "takes effect after 20 s",
    "its answer takes 20 s",
    "the process is paused for 150 s before it",
)
FATES_OF_READS = ("answers", "fails", "takes 20 s")


class SimulatedTransport:
    """Carries the requests of one process."""

    def __init__(
        self,
        world: World,
        server: SimulatedApiServer,
        process: str,
        chance: float,
        *,
        thread: str,
        alive: Callable[[], bool],
        kill: Callable[[], None],
    ):
        """``thread`` makes the requests; ``alive`` and ``kill`` are of its process; ``chance`` is
        that of trouble.
        """
        self._world = world
        self._server = server
        self._process = process
        self._chance = chance
        self._thread = thread
        self._alive = alive
        self._kill = kill

    @property
    def now(self) -> datetime:
        return self._world.now

    def send(self, call: Call) -> bytes:
        """Makes a request whose answer is not looked at."""
        return json.dumps(self.answer(call)).encode()

    def lines(self, call: Call, most: int = 0) -> Any:
        """No pod has a log."""
        return iter(())

    def answer(self, call: Call) -> Manifest:
        """Makes a request, which goes well or not."""
        self._go_on()
        read = call.verb in _READS
        site = f"{self._process} {call.verb} {call.kind}"
        options = FATES_OF_READS if read else FATES
        fate = self._world.pick(site, options, self._chance / 4 if read else self._chance)
        lost = Unreachable(f"cannot {call.verb} {call.where}: no answer")
        if self._world.seconds < self._server.away_until:
            raise lost
        match fate:
            case "fails" | "fails before it takes effect":
                raise lost
            case "the process is killed before it":
                self._die()
            case "takes 20 s" | "takes effect after 20 s":
                self._wait(20.0, (self._thread,))
            case "the process is paused for 150 s before it":
                self._wait(150.0, ("work", "lease", "watch", "jobs"))
        found = self._server.answer(call, self._process)
        match fate:
            case "its answer takes 20 s":
                self._wait(20.0, (self._thread,))
            case "takes effect, and its answer is lost":
                raise lost
            case "takes effect, and is repeated because its answer is lost":
                return self._server.answer(call, self._process)
            case "the process is killed after it":
                self._die()
        return found

    def _wait(self, seconds: float, threads: tuple[str, ...]) -> None:
        self._world.wait(seconds, (f"{self._process}/{thread}" for thread in threads))
        self._go_on()

    def _go_on(self) -> None:
        if not self._alive():
            raise Killed

    def _die(self) -> None:
        self._kill()
        raise Killed
