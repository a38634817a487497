"""Binding of launch arguments to kernel parameters, and the constant banks that the code reads."""
