"""``python -m backfill.runtime``: the launcher is a module of its own, so that nothing is imported, and replaced, twice."""

import sys

from backfill.runtime.catalogs import publish_catalogs


def _main() -> int:
    publish_catalogs()
    from backfill.runtime.launch import main  # imports PyIceberg, which reads the environment only then

    return main()


if __name__ == "__main__":
    sys.exit(_main())
