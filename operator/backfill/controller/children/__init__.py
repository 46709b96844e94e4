"""The SparkApplication of an attempt, made from production's,
with a dialect for each Spark operator. Pure.
"""
