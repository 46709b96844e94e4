"""What makes a Spark session on a few rows cheap: nothing of it runs long enough to be worth
compiling well.
"""

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PLANNED_NOT_COMPILED = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
