"""The ``backfill-operator`` command."""

import logging
import sys

from prometheus_client import disable_created_metrics

from backfill.api.errors import BackfillError
from backfill.controller.manager.handlers import run
from backfill.controller.manager.log_format import configure
from backfill.controller.manager.operator import Operator
from backfill.controller.manager.options import parse


def main() -> int:
    """Runs the operator.

    Returns its exit status: 0 if it was asked to end, 1 if it failed, 2 for wrong options.
    """
    settings = parse(sys.argv[1:])
    disable_created_metrics()  # type: ignore[no-untyped-call]
    configure(settings.log_format, settings.log_level)
    try:
        return run(Operator(settings))
    except BackfillError as error:
        logging.getLogger(__name__).error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
