"""What the pod of a job runs: ``python -m backfill.job``. Images are older or newer than the
operator, so this name stays.
"""

import sys

from backfill.controller.cluster.job_pods.pod_main import main

if __name__ == "__main__":
    sys.exit(main())
