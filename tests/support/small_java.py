"""What makes Spark on a few rows cheap: nothing of it runs long enough to be worth compiling well."""

QUICK = "-XX:TieredStopAtLevel=1"
JAVA_OPTIONS = f"{QUICK} -XX:+UseSerialGC"
PLANNED_NOT_COMPILED = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
