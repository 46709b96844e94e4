"""Results of a backfill: staged in a branch, published in one commit, removed when they are not
needed. No Spark here.
"""
