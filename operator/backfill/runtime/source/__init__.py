"""The data source: from a step's splits to rows."""
