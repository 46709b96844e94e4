"""Compares the staged result of an output with production or a reference, as a Spark job of the
same driver.
"""
