"""What the API server last told of the objects of one kind, from watches and from the answers to
our own writes.

The two arrive in any order and from several threads, so a version is only ever replaced by a later
one. That versions of one kind can be compared as numbers is promised by Kubernetes for what its API
server stores (KEP-5504).
"""

import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable

from backfill.kube.names import BACKFILL_LABEL, GROUP, Key
from backfill.kube.resources import Manifest

Listener = Callable[[Key], None]
_MOST_DELETED = 10_000
_IDENTITY = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OUR_LABELS = (f"{GROUP}/", "spark-role", "app.kubernetes.io/managed-by")


def own_key(manifest: Manifest) -> Key | None:
    """A Backfill, or a SplitAssignment, which has its name: the object itself."""
    return _key(manifest)


def labelled_key(manifest: Manifest) -> Key | None:
    """Whatever else was made for a Backfill: the one that its label names; None where there is no
    label.
    """
    name = manifest["metadata"].get("labels", {}).get(BACKFILL_LABEL)
    return None if name is None else (manifest["metadata"]["namespace"], name)


def version_of(manifest: Manifest) -> int:
    """Later versions are greater; zero for none."""
    return int(manifest["metadata"].get("resourceVersion") or 0)


def uid_of(manifest: Manifest) -> str:
    """Tells an object from others that had its name before or will have it."""
    return str(manifest["metadata"]["uid"])


def owner_uid(manifest: Manifest) -> str | None:
    """The uid of the object that made this one and answers for it."""
    owners = manifest["metadata"].get("ownerReferences", ())
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)


class Cache:
    """Objects of one kind by namespace and name. Threads share it; what it gives must not be
    changed.
    """

    def __init__(
        self,
        backfill_of: Callable[[Manifest], Key | None],
        essence: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    ):
        """What is kept.

        Args:
            backfill_of: says which Backfill an object has to do with; one that has to do with none
                is not kept.
            essence: what to keep of an object, with its labels, names and versions.
        """
        self._backfill_of = backfill_of
        self.essence = essence
        """What is kept of an object; of that, it is the same."""
        self._objects: dict[Key, Manifest] = {}
        self._of_backfill: defaultdict[Key, set[Key]] = defaultdict(set)
        self._in_namespace: Counter[str] = Counter()
        self._deleted: OrderedDict[Key, int] = OrderedDict()
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many objects there are."""
        return len(self._objects)

    @property
    def namespaces(self) -> int:
        """How many namespaces have an object."""
        return len(self._in_namespace)

    def listen(self, listener: Listener) -> None:
        """Has a function called with the key of the Backfill whenever an object changed. It must be
        quick.
        """
        self._listeners.append(listener)

    def put(self, manifest: Manifest) -> None:
        """Keeps an object unless a later version of it, or its end, is known."""
        key, backfill = _key(manifest), self._backfill_of(manifest)
        if backfill is None:
            return
        with self._lock:
            known = max(
                self._deleted.get(key, 0),
                version_of(self._objects[key]) if key in self._objects else 0,
            )
            if version_of(manifest) <= known:
                return
            if key in self._objects:
                self._remove(key)
            self._objects[key] = self.essence(_without_managed_fields(manifest))
            self._of_backfill[backfill].add(key)
            self._in_namespace[key[0]] += 1
            self._deleted.pop(key, None)
        self._tell(backfill)

    def forget(self, manifest: Manifest) -> None:
        """An object is gone, as its last version says. Another one that has its name by now
        stays.
        """
        key = _key(manifest)
        with self._lock:
            self._note_end(key, version_of(manifest))
            kept = self._objects.get(key)
            if kept is None or (
                uid_of(kept) != uid_of(manifest) and version_of(kept) > version_of(manifest)
            ):
                return
            backfill = self._remove(key)
        self._tell(backfill)

    def replace(self, manifests: Iterable[Manifest], resource_version: str) -> None:
        """Takes a complete list as of a version: what is older and not in it is gone."""
        listed = {_key(manifest): manifest for manifest in manifests}
        with self._lock:
            gone = [
                key
                for key, kept in self._objects.items()
                if key not in listed and version_of(kept) <= int(resource_version)
            ]
            for key in gone:
                self._note_end(key, int(resource_version))
            backfills = [self._remove(key) for key in gone]
        for backfill in backfills:
            self._tell(backfill)
        for manifest in listed.values():
            self.put(manifest)

    def get(self, namespace: str, name: str) -> Manifest | None:
        """One object; None where there is none."""
        return self._objects.get((namespace, name))

    def of(self, backfill: Key) -> list[Manifest]:
        """All objects that have to do with a Backfill of that name, those of an earlier one of the
        name included.
        """
        with self._lock:
            return [self._objects[key] for key in self._of_backfill.get(backfill, ())]

    def owned_by(self, backfill: Key, uid: str) -> list[Manifest]:
        """The objects that this very Backfill made."""
        return [manifest for manifest in self.of(backfill) if owner_uid(manifest) == uid]

    def keys(self) -> list[Key]:
        """The keys of all objects."""
        with self._lock:
            return list(self._objects)

    def _remove(self, key: Key) -> Key:
        backfill = self._backfill_of(self._objects.pop(key))
        if backfill is None:
            raise AssertionError("an object is kept that has to do with no Backfill")
        self._in_namespace[key[0]] -= 1
        if not self._in_namespace[key[0]]:
            del self._in_namespace[key[0]]
        keys = self._of_backfill[backfill]
        keys.discard(key)
        if not keys:
            del self._of_backfill[backfill]
        return backfill

    def _note_end(self, key: Key, version: int) -> None:
        """An answer of ours that comes late must not bring it back."""
        self._deleted[key] = max(version, self._deleted.pop(key, 0))
        while len(self._deleted) > _MOST_DELETED:
            self._deleted.popitem(last=False)

    def _tell(self, backfill: Key) -> None:
        for listener in self._listeners:
            listener(backfill)


def _key(manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata["name"]


def identity(manifest: Manifest) -> Manifest:
    """The metadata that tells whose an object is and what becomes of it; annotations and foreign
    labels can be as long as all the rest.
    """
    metadata = manifest["metadata"]
    kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
    labels = {
        name: value
        for name, value in (metadata.get("labels") or {}).items()
        if name.startswith(_OUR_LABELS)
    }
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    return kept | {"labels": labels, "ownerReferences": owners}


def _without_managed_fields(manifest: Manifest) -> Manifest:
    """They can be as long as all the rest, and nothing reads them."""
    metadata = {
        name: value for name, value in manifest["metadata"].items() if name != "managedFields"
    }
    return {**manifest, "metadata": metadata}
