"""The driver of an application that continues with live traffic after a hand-off: the unmodified
program, and beside it a listener that reports how far it is behind Kafka.
"""
