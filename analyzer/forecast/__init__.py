"""Whole runs of language models: operators of each step, their times, memory, serving over time."""
