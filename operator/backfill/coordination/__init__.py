"""How far may be read, with how many executors, and when the run will be done. Pure functions
without I/O or clock.
"""
