"""The images that the tests run, by the names that they have in the cluster."""

OPERATOR = "localhost/backfill-operator:dev"
JOBS = "localhost/backfill-jobs:dev"
SPARK = "localhost/backfill-spark:dev"
STORES = "localhost/backfill-stores:dev"
