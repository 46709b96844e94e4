"""Long work beside the reconciles: its kinds, its processes, and what they say."""
