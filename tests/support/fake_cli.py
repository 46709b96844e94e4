"""The command line with the fake driver in the place of Spark: everything else is the real
thing.
"""

import functools
import sys
from pathlib import Path

from backfill.cli import foreground
from backfill.cli.main import main
from backfill.controller.local.driver import LocalBackend

if __name__ == "__main__":
    command = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
    foreground.LocalBackend = functools.partial(LocalBackend, command=command)  # type: ignore[misc,assignment]
    main()
