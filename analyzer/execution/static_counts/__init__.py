"""Block counts without a launch: trip counts from constants, branch probabilities from heuristics."""
