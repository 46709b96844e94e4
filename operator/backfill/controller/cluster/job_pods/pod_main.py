"""The program of a job's pod: ``python3 -I -m backfill.job``.

It reads its job from the mounted ConfigMap, runs it with the identity and the mounted catalogs of
the pod, and writes the result into its JobReport. Its service account needs ``patch`` on
``jobreports/status``.
"""

import base64
import logging
import os
import resource
import sys
import time
import traceback
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from pathlib import Path

from backfill.api.catalog_properties import (
    CATALOGS_DIRECTORY,
    CATALOGS_VARIABLE,
    application_catalogs,
    mounted_catalogs,
)
from backfill.api.errors import BackfillError
from backfill.api.job_report import JOB_VARIABLE, MOST_RESULT_BYTES
from backfill.api.redaction import RedactedText, Redactor, redactor
from backfill.controller.cluster.job_pods.packed_jobs import decode_job, encode_end, encode_progress
from backfill.controller.cluster.job_pods.pod_manifests import (
    JOB_DIRECTORY,
    JOB_KEY,
    PROGRESS_KEY,
    RESULT_KEY,
)
from backfill.controller.jobs.any_job import Job, Used
from backfill.controller.jobs.job_messages import Message, redacted
from backfill.controller.jobs.run_job import run_job
from backfill.iceberg.answer_limits import bound_answers
from backfill.kube.client import Cluster
from backfill.kube.packed_json import MOST_VALUES, is_readable
from backfill.kube.request_errors import ClusterError, NotFound
from backfill.kube.resources import JOB_REPORT
from backfill.planning.planning_progress import PlanningProgress
from backfill.protocol.split_assignment import DRIVER_MANAGER

_LOG = logging.getLogger(__name__)
_PROGRESS_SECONDS = 5.0
DIRECTORY_VARIABLE = "BACKFILL_JOB_DIRECTORY"
"""Environment variable that names another directory for the job, for tests."""


def main() -> int:
    """Runs the job.

    The exit status is 0 once its end is recorded, whether it succeeded or failed.
    """
    os.environ.setdefault(CATALOGS_VARIABLE, CATALOGS_DIRECTORY)
    catalogs: dict[str, dict[str, str]] = {}
    unreadable: BackfillError | None = None
    try:
        catalogs = mounted_catalogs(Path(os.environ[CATALOGS_VARIABLE]))
    except BackfillError as error:
        unreadable = error
    translated = application_catalogs(os.environ)
    catalogs |= {name: each for name, each in translated.items() if isinstance(each, dict)}
    hidden = redactor(catalogs, os.environ)
    with redirect_stderr(RedactedText(sys.stderr, hidden)):
        return _main(hidden, unreadable)


def _main(hidden: Redactor, unreadable: BackfillError | None) -> int:
    """Reports the job's end. None is done if a Secret is ``unreadable``: the others could not be
    kept out of its messages.
    """
    began = time.monotonic()
    bound_answers()
    try:
        job = decode_job(
            (Path(os.environ.get(DIRECTORY_VARIABLE, JOB_DIRECTORY)) / JOB_KEY).read_bytes()
        )
        cluster = (
            Cluster.in_cluster()
            if "KUBERNETES_SERVICE_HOST" in os.environ
            else Cluster.from_kubeconfig()
        )
        desk = _Desk(cluster, os.environ[JOB_VARIABLE])
        desk.check_in()
        end = Message("Failed", error=unreadable) if unreadable else run_job(job, desk.note)
        used = Used(
            time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        desk.hand_in(job, replace(redacted(end, hidden), used=used))
    except (BackfillError, OSError, KeyError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except Exception:
        traceback.print_exc()  # the interpreter would print it without redaction
        return 1
    return 0


@dataclass(slots=True)
class _Desk:
    """Records progress and result in the JobReport."""

    cluster: Cluster
    report: str
    noted_at: float = field(default=-_PROGRESS_SECONDS)

    def check_in(self) -> None:
        """Checks that the result is still wanted.

        An operator that was paused may create the pod of a job that another one has abandoned, and
        whose Backfill is gone: nobody would remove what the job makes. Other errors may pass before
        the job is done.

        Raises:
            BackfillError: the JobReport does not exist.
        """
        try:
            self._change({})
        except NotFound as error:
            raise BackfillError(
                f"JobReport {self.report} does not exist: the job was abandoned"
            ) from error
        except ClusterError as error:
            _LOG.warning("the JobReport could not be checked: %s", error)

    def note(self, progress: PlanningProgress) -> None:
        """Records the progress of planning at intervals. Errors are ignored."""
        if time.monotonic() - self.noted_at < _PROGRESS_SECONDS:
            return
        self.noted_at = time.monotonic()
        try:
            self._write(PROGRESS_KEY, encode_progress(progress))
        except ClusterError as error:
            _LOG.warning("progress could not be reported: %s", error)

    def hand_in(self, job: Job, end: Message) -> None:
        """Records how the job has ended."""
        content = encode_end(job, end)
        if len(content) > MOST_RESULT_BYTES or not is_readable(content):
            text = (
                f"the result has {len(content):,} bytes compressed; at most {MOST_RESULT_BYTES:,}"
                f" bytes with {MOST_VALUES:,} values can be returned"
            )
            fix = "raise maxMisalignment or planning.targetStepBytes for fewer steps"
            content = encode_end(
                job, Message("Failed", error=BackfillError(f"{text}; {fix}"), used=end.used)
            )
        self._write(RESULT_KEY, base64.b64encode(content).decode())

    def _write(self, key: str, text: str) -> None:
        self._change({key: text})

    def _change(self, status: dict[str, str]) -> None:
        namespace, change = self.cluster.namespace, {"status": status}
        self.cluster.merge(
            JOB_REPORT, namespace, self.report, change, manager=DRIVER_MANAGER, subresource="status"
        )
