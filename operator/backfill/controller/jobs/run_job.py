"""Runs a job to its end, whatever happens in it."""

import sys

from backfill.api.errors import BackfillError, ServerUnavailable
from backfill.controller.jobs.any_job import Job, OnProgress
from backfill.controller.jobs.job_messages import Message
from backfill.iceberg.library_errors import reason, says_later, trace


def run_job(job: Job, on_progress: OnProgress) -> Message:
    """Runs a job and returns how it has ended. Unexpected errors are printed."""
    try:
        return Message("Done", result=job.run(on_progress))
    except BackfillError as error:
        return Message("Failed", error=error)
    except MemoryError as error:
        sys.stderr.write(trace(error))
        return Message("OutOfMemory")
    except Exception as error:
        sys.stderr.write(trace(error))
        if says_later(error):
            return Message("Failed", error=ServerUnavailable(reason(error)))
        return Message("Broken", cause=f"{type(error).__name__}: {reason(error)}")
