#!/bin/sh
# Gets what tests against Kafka need: the jars of a broker, and Spark's jars for Kafka. Prints their directories, a line each.
set -eu
cd "$(dirname "$0")/.."
sh scripts/jars.sh tests/support/kafka/pom.xml tests/support/kafka/jars.sha256 kafka
sh scripts/jars.sh spark-images/jars/pom.xml spark-images/jars/jars.sha256 jars
