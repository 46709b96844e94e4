"""Excludes libraries from garbage collection.

After each task, Spark collects the garbage of the process that has run it. With the libraries that
a source needs, this takes 20 to 40 ms, as long as reading 500,000 rows, and finds nothing.
"""

import gc
from functools import cache


@cache
def exempt_from_collection(user: str) -> None:
    """Excludes everything that is in memory from garbage collection, once for each ``user``, after
    it has loaded what it needs.
    """
    gc.collect()  # otherwise present garbage would stay forever
    gc.freeze()
