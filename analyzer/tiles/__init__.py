"""Triton IR evaluated at tile level: what each program of a launch executes, and classes of equal programs."""
