"""Latest known state of the objects of one kind,
from watches and from the answers to our own writes.

Both arrive in any order and in several threads, so an object is only ever replaced by a later
version. Kubernetes guarantees that versions of one kind can be compared as numbers (KEP-5504).
"""

import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable

from backfill.kube.object_names import BACKFILL_LABEL, GROUP, Key
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
    """The key of the Backfill that a Backfill or its
    SplitAssignment belongs to: they have its name.
    """
    return _key(manifest)


def labelled_key(manifest: Manifest) -> Key | None:
    """The key of the Backfill that the object's label names; None without that label."""
    name = _labels(manifest).get(BACKFILL_LABEL)
    return None if name is None else (manifest["metadata"]["namespace"], name)


def named_key(manifest: Manifest) -> Key | None:
    """The key of the Backfill that the object's spec names; None if it names none."""
    name = (manifest.get("spec") or {}).get("backfill")
    return (manifest["metadata"]["namespace"], name) if isinstance(name, str) else None


def version_of(manifest: Manifest) -> int:
    """The object's resourceVersion as a number; zero if it has none. Later versions are greater."""
    return int(manifest["metadata"].get("resourceVersion") or 0)


def uid_of(manifest: Manifest) -> str:
    """The uid, which distinguishes an object from earlier and later ones of the same name."""
    return str(manifest["metadata"]["uid"])


def owner_uid(manifest: Manifest) -> str | None:
    """The uid of the object's controller; None if it has none."""
    return next((str(owner["uid"]) for owner in _owners(manifest)), None)


class Cache:
    """Objects of one kind by namespace and name. May be used by several threads; what it returns
    must not be modified.
    """

    def __init__(
        self,
        backfill_of: Callable[[Manifest], Key | None],
        essence: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    ):
        """Creates an empty cache.

        Args:
            backfill_of: returns the key of the Backfill that an object belongs to; objects that
                belong to none are not kept.
            essence: reduces an object to what is kept. Names, labels and versions must be kept.
        """
        self._backfill_of = backfill_of
        self.essence = essence
        """Reduces an object to what is kept. Applied to its own result, it changes nothing."""
        self._objects: dict[Key, Manifest] = {}
        self._of_backfill: defaultdict[Key, set[Key]] = defaultdict(set)
        self._in_namespace: Counter[str] = Counter()
        self._deleted: OrderedDict[Key, int] = OrderedDict()
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of objects."""
        return len(self._objects)

    @property
    def namespaces(self) -> int:
        """Number of namespaces that have an object."""
        return len(self._in_namespace)

    def listen(self, listener: Listener) -> None:
        """Registers a function that is called with the key of the Backfill after each change of an
        object. It must return quickly.
        """
        self._listeners.append(listener)

    def put(self, manifest: Manifest) -> None:
        """Stores an object, unless a later version or its deletion is known."""
        key, backfill = _key(manifest), self._backfill_of(manifest)
        if backfill is None:
            return
        kept = self.essence(_without_managed_fields(manifest))
        with self._lock:
            known = max(
                self._deleted.get(key, 0),
                version_of(self._objects[key]) if key in self._objects else 0,
            )
            if version_of(manifest) <= known:
                return
            if key in self._objects:
                self._remove(key)
            self._objects[key] = kept
            self._of_backfill[backfill].add(key)
            self._in_namespace[key[0]] += 1
            self._deleted.pop(key, None)
        self._notify(backfill)

    def forget(self, manifest: Manifest) -> None:
        """Records the deletion of an object, given its last version.

        A newer object of the same name stays.
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
        self._notify(backfill)

    def replace(self, manifests: Iterable[Manifest], resource_version: str) -> None:
        """Takes a complete list as of a version:
        older objects that are not in it no longer exist.
        """
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
            self._notify(backfill)
        for manifest in listed.values():
            self.put(manifest)

    def get(self, namespace: str, name: str) -> Manifest | None:
        """One object; None if there is none."""
        with self._lock:  # an object that is being replaced is missing for a moment
            return self._objects.get((namespace, name))

    def of(self, backfill: Key) -> list[Manifest]:
        """All objects that belong to a Backfill of this name, including those of an earlier one."""
        with self._lock:
            return [self._objects[key] for key in self._of_backfill.get(backfill, ())]

    def owned_by(self, backfill: Key, uid: str) -> list[Manifest]:
        """The objects that the Backfill with this uid owns."""
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
        """Remembers the deletion, so that a late answer to
        a write of ours does not bring the object back.
        """
        self._deleted[key] = max(version, self._deleted.pop(key, 0))
        while len(self._deleted) > _MOST_DELETED:
            self._deleted.popitem(last=False)

    def _notify(self, backfill: Key) -> None:
        for listener in self._listeners:
            listener(backfill)


def _key(manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata["name"]


def identity(manifest: Manifest) -> Manifest:
    """The metadata that identifies an object, its owner and its deletion. Annotations and labels of
    others are left out, because they can be as large as everything else.
    """
    metadata = manifest["metadata"]
    kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
    labels = {
        name: value for name, value in _labels(manifest).items() if name.startswith(_OUR_LABELS)
    }
    return kept | {"labels": labels, "ownerReferences": _owners(manifest)}


def _labels(manifest: Manifest) -> Manifest:
    """None where there are more than are read."""
    labels = manifest["metadata"].get("labels")
    return labels if isinstance(labels, dict) else {}


def _owners(manifest: Manifest) -> list[Manifest]:
    """Its controllers; none where there are more owners than are read."""
    owners = manifest["metadata"].get("ownerReferences")
    return [each for each in owners if each.get("controller")] if isinstance(owners, list) else []


def _without_managed_fields(manifest: Manifest) -> Manifest:
    """The object without managed fields, which can be
    as large as everything else and are never read.
    """
    metadata = {
        name: value for name, value in manifest["metadata"].items() if name != "managedFields"
    }
    return {**manifest, "metadata": metadata}
