"""What an API server and the network in front of it may do to an operator: hooks of the unreliable
proxy, in a fixed order.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle

from proxy import CUT, Cut, Request, Response, UnreliableProxy, expired_event, refusal
from rest import Manifest
from written import Written, is_real_write

_STALE_SECONDS = 0.25
_BETWEEN_DROPS_SECONDS = 0.7

Weather = Callable[[UnreliableProxy, Written], None]


def refusals(proxy: UnreliableProxy, written: Written) -> None:
    """Every third request is refused: by a conflict where it is a write, by a server that is busy,
    by one that fails.
    """
    numbers = count(1)
    answers = cycle(
        [
            refusal(409, "Conflict"),
            refusal(429, "TooManyRequests", 1),
            refusal(500, "InternalError"),
        ]
    )

    def before(request: Request) -> Response | None:
        if next(numbers) % 3 or request.resource == "leases":
            return None
        answer = next(answers)
        return answer if answer.status != 409 or is_real_write(request) else None

    proxy.before, proxy.after = before, written.note


def lost_answers(proxy: UnreliableProxy, written: Written) -> None:
    """Every second write is done, and the operator does not learn of it."""
    numbers = count(1)

    def after(request: Request, response: Response) -> Cut | None:
        written.note(request, response)
        return CUT if is_real_write(request) and next(numbers) % 2 == 0 else None

    proxy.after = after


def broken_watches(proxy: UnreliableProxy, written: Written) -> None:
    """Every fifth event says that the watch is too old, and the event is lost with it; connections
    are dropped besides.
    """
    numbers = count(1)

    def on_event(request: Request, event: Manifest) -> Manifest | None:
        return expired_event() if next(numbers) % 5 == 0 else None

    proxy.on_event, proxy.after = on_event, written.note


def stale_reads(proxy: UnreliableProxy, written: Written) -> None:
    """What is listed and watched is old when it arrives."""

    def on_event(request: Request, event: Manifest) -> None:
        time.sleep(_STALE_SECONDS)

    def after(request: Request, response: Response) -> None:
        written.note(request, response)
        if request.verb == "list":
            time.sleep(_STALE_SECONDS)

    proxy.on_event, proxy.after = on_event, after


@contextmanager
def dropped_watches(proxy: UnreliableProxy) -> Iterator[None]:
    """All watches are dropped again and again while the block runs."""
    end = threading.Event()

    def drop() -> None:
        while not end.wait(_BETWEEN_DROPS_SECONDS):
            proxy.kill_watches()

    thread = threading.Thread(target=drop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
