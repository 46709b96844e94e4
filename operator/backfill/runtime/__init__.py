"""What runs inside Spark: launcher, agent, sources and sinks;
for applications, sources and outputs by name.
"""

from backfill.runtime.named_sources import read_source, write_output

__all__ = ["read_source", "write_output"]
