"""Launch arguments bound to kernel parameters, and the constant banks that the code then reads."""
