"""``python -m backfill.runtime``. The launcher is a module of its own, so that its classes are not
imported a second time.
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from backfill.api.catalog_properties import CATALOGS_VARIABLE, catalog_variables, mounted_catalogs
from backfill.protocol.hand_off_messages import LIVE_SETTINGS_VARIABLE


def publish_catalogs(environment: MutableMapping[str, str] = os.environ) -> None:
    """Puts the properties of all catalogs that are mounted into this pod into the environment.

    PyIceberg reads them there when it is imported, also for the application. Tasks, and the
    processes that commit, are started by the JVM and do not get what this program adds to its
    environment: they read the mounted files themselves, see
    :func:`backfill.iceberg.catalogs.catalog_properties`.
    """
    directory = environment.get(CATALOGS_VARIABLE)
    for name, properties in mounted_catalogs(Path(directory)).items() if directory else ():
        environment.update(catalog_variables(name, properties))


def _main() -> int:
    if LIVE_SETTINGS_VARIABLE in os.environ:
        from backfill.runtime.live.live_launch import main as main_of_live_application

        main_of_live_application()
        return 0
    publish_catalogs()
    from backfill.runtime.early_java import start_java

    start_java()
    # imports PyIceberg, which reads the environment at that moment
    from backfill.runtime.launch import main

    return main()


if __name__ == "__main__":
    sys.exit(_main())
