"""The SparkApplication of an attempt, made from production's; one dialect for each Spark operator.
Pure.
"""
