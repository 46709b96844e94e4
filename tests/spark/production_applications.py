"""Runs programs as production does, one after the other in one session.

Each line of its standard input is a JSON list: a main file and its arguments. Prints a line when it
has ended: its error, or nothing, and what the observer of live applications reports of its queries.
"""

import json
import runpy
import sys
import traceback

from pyspark.sql import SparkSession

from backfill.runtime.live.observer import Observer, observe
from backfill.runtime.spark_versions import FILE_MANAGER
from small_java import ON_A_FEW_ROWS
from waiting import eventually

if __name__ == "__main__":
    settings = ON_A_FEW_ROWS | {
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        "spark.jars": sys.argv[1],
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "3",
    }
    spark = SparkSession.builder.master("local[4]").config(map=settings).getOrCreate()
    observer = Observer()
    observe(observer)
    for line in sys.stdin:
        sys.argv = json.loads(line)
        outcome = ""
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except BaseException as error:
            traceback.print_exc()
            outcome = f"{type(error).__name__}: {error}"
        # events come later than what they say
        eventually(lambda: all(query.ended for query in observer.report().queries), "last events")
        print(
            json.dumps({"outcome": outcome, "report": observer.report().to_manifest()}), flush=True
        )
