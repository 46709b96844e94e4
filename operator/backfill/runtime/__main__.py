"""``python -m backfill.runtime``. The launcher is a module of its own, so that its classes are not
imported a second time.
"""

import os
import sys

from backfill.protocol.hand_off_messages import LIVE_SETTINGS_VARIABLE
from backfill.runtime.mounted_catalogs import publish_catalogs


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
