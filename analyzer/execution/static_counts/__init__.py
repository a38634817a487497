"""Block counts with no launch known: trip counts from constants, branch probabilities from heuristics."""
