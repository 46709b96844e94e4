#!/bin/sh
# constraints.sh SPARK: prints constraints.txt as it is for another version of Spark than the newest: 3.5, 4.0, 4.1 or 4.2.
set -eu
cd "$(dirname "$0")/.."
own=spark-images/$1/constraints.txt
names=$(sed 's/==.*//' "$own" | paste -s -d '|')
grep -v -E "^($names)==" constraints.txt
cat "$own"
