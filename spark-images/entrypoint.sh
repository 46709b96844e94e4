#!/bin/bash
# What Spark on Kubernetes starts its pods with: `driver ARGUMENTS` becomes spark-submit in client mode, `executor` the executor
# that the SPARK_* variables of the pod describe; anything else is run as it is.
set -euo pipefail

classpath=${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*
if [ -n "${HADOOP_CONF_DIR:-}" ]; then classpath=$HADOOP_CONF_DIR:$classpath; fi
if [ -n "${SPARK_EXTRA_CLASSPATH:-}" ]; then classpath=$classpath:$SPARK_EXTRA_CLASSPATH; fi
classpath=$classpath:$PWD # where files of the application are brought to

case "${1:-}" in
  driver)
    shift
    set -- "$SPARK_HOME/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      --deploy-mode client "$@"
    ;;
  executor)
    # One variable for each option, numbered from zero; an option may contain spaces.
    options=()
    for ((number = 0; ; number++)); do
      name=SPARK_JAVA_OPT_$number
      [ -n "${!name+set}" ] || break
      options+=("${!name}")
    done
    set -- "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "$classpath:${SPARK_DIST_CLASSPATH:-}" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac
exec /usr/bin/tini -s -- "$@"
