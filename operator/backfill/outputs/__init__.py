"""Results of a backfill: staged in a branch, published in one commit, and removed when no longer
needed. Does not use Spark.
"""
