#!/bin/sh
# spark-jars.sh [SPARK]: prints a directory with the jars that images have beyond PySpark's own, for 4.3 or another version of Spark.
set -eu
cd "$(dirname "$0")/.."
spark=${1:-4.3}
exec sh scripts/jars.sh spark-images/pom.xml "spark-images/$spark/jars.sha256" "spark-$spark" "-Dspark=$spark"
