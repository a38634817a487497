"""Acceleration of loops by symbolic iterations, and decisions of branches with unknown conditions."""
