#!/bin/sh
# kafka.sh [SPARK]: gets what tests against Kafka need: the jars of a broker, and the jars of a version of Spark for Kafka. Prints
# their directories, a line each.
set -eu
cd "$(dirname "$0")/.."
sh scripts/jars.sh tests/support/kafka/pom.xml tests/support/kafka/jars.sha256 kafka
sh scripts/spark-jars.sh "$@"
