"""The kinds of jobs, a module for each.

Each job is a frozen dataclass whose ``run`` does the work in another process. It imports the
libraries that it needs when it runs, because the controller itself never opens a table.
"""
