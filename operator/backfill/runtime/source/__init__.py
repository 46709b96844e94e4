"""The data source: reads the splits of a step as rows."""
