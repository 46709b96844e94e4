"""Long work beside the reconciles: kinds of jobs, their processes, and the messages with these."""
