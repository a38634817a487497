"""Whole launches: which CTAs are executed, the proof that they stand for all, the resulting profile."""
