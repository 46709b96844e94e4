"""``python -m backfill.runtime``: the launcher is a module of its own, so that nothing is imported,
and replaced, twice.
"""

import sys

from backfill.runtime.catalogs import publish_catalogs


def _main() -> int:
    publish_catalogs()
    # imports PyIceberg, which reads the environment only then
    from backfill.runtime.launch import main

    return main()


if __name__ == "__main__":
    sys.exit(_main())
