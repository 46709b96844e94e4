"""What the pod of a job runs: ``python3 -I -m backfill.job``."""

import signal
import sys

from backfill.controller.cluster.job_pods.pod_main import main

if __name__ == "__main__":
    # the first process of a container ignores signals without a handler
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
