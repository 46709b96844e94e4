"""Runs a job to its end, whatever happens in it."""

import traceback

from backfill.api.errors import BackfillError, ServerUnavailable, first_line
from backfill.controller.jobs.any_job import Job, OnProgress
from backfill.controller.jobs.job_messages import Message
from backfill.iceberg.library_errors import says_later


def run_job(job: Job, on_progress: OnProgress) -> Message:
    """Runs a job and returns how it has ended. Unexpected errors are printed."""
    try:
        return Message("Done", result=job.run(on_progress))
    except BackfillError as error:
        return Message("Failed", error=error)
    except MemoryError:
        traceback.print_exc()
        return Message("OutOfMemory")
    except Exception as error:
        traceback.print_exc()
        if says_later(error):
            return Message("Failed", error=ServerUnavailable(first_line(error)))
        return Message("Broken", cause=f"{type(error).__name__}: {first_line(error)}")
