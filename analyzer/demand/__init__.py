"""Demand of the code on the hardware: instruction mix, operations per pipe, bytes per memory level."""
