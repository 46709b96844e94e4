"""``python -m backfill.runtime``. The launcher is a module of its own, so that its classes are not
imported a second time.
"""

import sys

from backfill.runtime.catalogs import publish_catalogs


def _main() -> int:
    publish_catalogs()
    # imports PyIceberg, which reads the environment at that moment
    from backfill.runtime.launch import main

    return main()


if __name__ == "__main__":
    sys.exit(_main())
