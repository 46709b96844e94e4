"""The operator's process: watching, work queue, leader election, metrics, probes, Events."""
