"""What is loaded for good is left out of garbage collection."""

import subprocess
import sys

_PROGRAM = """
import gc
import weakref

from backfill.runtime.source.garbage_collection import exempt_from_collection


class Cycle:
    def __init__(self):
        self.itself = self


gc.disable()
before, later = Cycle(), None
garbage = weakref.ref(before)
del before
exempt_from_collection("a source")
assert garbage() is None, "garbage was kept for good"
kept = gc.get_freeze_count()
assert kept > 1_000, f"only {kept} objects are exempt"

later = [Cycle() for _ in range(100)]
exempt_from_collection("a source")
assert gc.get_freeze_count() == kept, "the same user has exempted twice"
exempt_from_collection("a sink")
assert gc.get_freeze_count() > kept, "what another user has loaded is not exempt"
"""


def test_each_user_exempts_what_is_loaded_once_and_no_garbage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
