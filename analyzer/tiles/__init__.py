"""Triton IR evaluated at tile level: what each program of a launch does, and classes of equal programs."""
