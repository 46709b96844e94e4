"""What an operator has written, as the API server answered it, and what must be true of it however
the operator fared.
"""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from proxy import CUT, Cut, Request, Response, UnreliableProxy
from rest import Manifest

Made = tuple[str, str]
"""Resource and name."""
Write = tuple[str, int]
"""Verb and resource, and the how manyeth of them in the life of a Backfill it is."""
_MOST_BETWEEN = 4
"""Writes of others before one that is late."""
_ALONE_BETWEEN_CUTS = 1 + _MOST_BETWEEN
"""Enough for one that is late to arrive, and for the operator after a death to have caught up."""


@dataclass
class Written:
    """Every answer to a write that was done; use :meth:`note` as, or in, a proxy's ``after``
    hook.
    """

    made: Counter[Made] = field(default_factory=Counter)
    """How often each object was created."""
    released: defaultdict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By SplitAssignment: attempt and released step, as they were written one after the other."""
    attempts: defaultdict[str, list[tuple[int, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By Backfill: the numbers of its attempts, as they were written one after the other."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, request: Request, response: Response) -> Response | Cut | None:
        if is_real_write(request) and response.status < 300:
            with self._lock:
                self._note(request, response.status, response.manifest)
        return None

    def children(self, backfill: str) -> list[str]:
        """The children that were ever made for a Backfill."""
        return sorted(
            name
            for kind, name in self.made
            if kind == "sparkapplications" and name.startswith(f"{backfill}-a")
        )

    def assert_sound(self) -> None:
        """Nothing was made twice, no release went back, attempts were counted one by one."""
        for (kind, name), times in self.made.items():
            assert times == 1, f"{kind} {name} was made {times} times"
        for name, releases in self.released.items():
            assert releases == sorted(releases), f"{name} was released {releases}"
        for name, histories in self.attempts.items():
            for earlier, later in pairwise(histories):
                assert later[: len(earlier)] == earlier, (
                    f"attempts of {name} were {earlier}, then {later}"
                )
                assert later == tuple(range(1, len(later) + 1)), (
                    f"attempts of {name} are numbered {later}"
                )

    def _note(self, request: Request, status: int, manifest: Manifest) -> None:
        name = request.name
        if request.verb == "create" and status == 201 and name:  # of Events, the server makes names
            self.made[request.resource, name] += 1
        if request.resource == "splitassignments" and request.verb != "delete":
            self.released[name].append((manifest["spec"]["attempt"], manifest["spec"]["released"]))
        if request.resource == "backfills/status":
            self.attempts[name].append(
                tuple(each["number"] for each in manifest["status"].get("attempts", ()))
            )


class CutWrites:
    """Of one life, the writes that were cut in no life before: ``before`` they reach the server, or
    ``after``, so that they are done. Between two of them are some that are left alone.

    ``late``: a write is cut before, and reaches the server when others have been written meanwhile.
    ``never``: none is cut.
    """

    def __init__(self, moment: str, proxy: UnreliableProxy, known: set[Write]):
        """``known``: what was cut in lives before, to which this one adds."""
        self._moment, self._proxy, self._known = moment, proxy, known
        self.written = Written()
        self.spares = False
        """Whether writes are neither cut nor counted."""
        self._seen = 0
        self._times: Counter[str] = Counter()
        self._strikes = False
        """Whether the write that is under way is to be cut."""
        self._left_alone = _ALONE_BETWEEN_CUTS
        self._again: str | None = None
        """The kind of write that the next operator does in the place of one that was not done."""
        self._late: Request | None = None
        self._late_after = 0
        self.struck: list[Write] = []
        """The writes that were cut."""
        self.left: set[Write] = set()
        """The writes that were cut neither in this life nor before."""

    def before(self, request: Request) -> Response | Cut | None:
        if not is_real_write(request):
            return None
        self._seen += 1
        self._count(f"{request.verb} {request.resource}")
        if self._late is not None and self._seen > self._late_after:
            late, self._late = self._late, None
            self.written.note(late, self._proxy.pass_on(late))
        if self._moment == "late" and self._strikes:
            self._late, self._late_after = (
                request,
                self._seen + 1 + len(self._known) % _MOST_BETWEEN,
            )
        return self._cut("before", "late")

    def after(self, request: Request, response: Response) -> Response | Cut | None:
        self.written.note(request, response)
        return self._cut("after") if is_real_write(request) else None

    def _count(self, kind: str) -> None:
        """Whether this write is cut depends on how many of its kind there were."""
        self._strikes = False
        if self.spares:
            return
        self._left_alone += 1
        if self._again == kind:
            self._again = None
            return
        self._times[kind] += 1
        write = kind, self._times[kind]
        if write in self._known:
            return
        if self._moment == "never" or self._left_alone <= _ALONE_BETWEEN_CUTS:
            self.left.add(write)
            return
        self._strikes, self._left_alone = True, 0
        self._known.add(write)
        self.struck.append(write)
        self._again = None if self._moment == "after" else kind

    def _cut(self, *moments: str) -> Cut | None:
        return CUT if self._strikes and self._moment in moments else None


def is_real_write(request: Request) -> bool:
    """A dry run changes nothing, and a Lease is none of a Backfill's."""
    return request.is_write and "dryRun" not in request.query and request.resource != "leases"
