#!/bin/bash
# The hook that Spark runs before an executor's pod is stopped (spark.kubernetes.decommission.script): the executor hands on
# the blocks it holds and exits; the pod is stopped when it has, or after a minute.
set -uo pipefail
SECONDS_TO_HAND_ON=60

executor() {
  grep -alz '^org\.apache\.spark\.scheduler\.cluster\.k8s\.KubernetesExecutorBackend$' /proc/[0-9]*/cmdline 2>/dev/null |
    while IFS=/ read -r _ _ process _; do
      [ "$(readlink "/proc/$process/exe")" = "$(readlink -f "$JAVA_HOME/bin/java")" ] && echo "$process"
    done | head -n 1
}

process=$(executor)
[ -n "$process" ] || exit 0
kill -s PWR "$process"
for ((second = 0; second < SECONDS_TO_HAND_ON; second++)); do
  kill -0 "$process" 2>/dev/null || exit 0
  sleep 1
done
