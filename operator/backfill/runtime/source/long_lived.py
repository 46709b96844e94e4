"""What a Python process has loaded for good is not looked through again and again.

After each task Spark collects the garbage of the process that ran it. With the libraries that a
source needs this takes 20 to 40 ms, as long as reading 500,000 rows, and finds nothing.
"""

import gc
from functools import cache


@cache
def exempt_from_collection(user: str) -> None:
    """Takes all that is in memory now out of garbage collection, once for each ``user``, who has
    just loaded what it needs.
    """
    gc.collect()  # else what is garbage by now would stay for good
    gc.freeze()
