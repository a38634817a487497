"""What the code asks of the hardware: instruction mix, operations per pipe, bytes per memory level."""
