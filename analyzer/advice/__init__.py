"""Advice: causes of lost time, each with a gain found by asking the model again without the cause."""
