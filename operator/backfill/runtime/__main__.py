"""``python -m backfill.runtime``: the launcher is a module of its own, so that nothing is imported, and replaced, twice."""

import sys

from backfill.runtime.launch import main

if __name__ == "__main__":
    sys.exit(main())
