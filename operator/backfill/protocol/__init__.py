"""What controller and driver say to each other:
split assignment, settings, liveness, branches, atomic files.
"""
