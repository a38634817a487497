"""The instruction set: opcodes, operand roles, shapes of matrix instructions, control bits (`hwdb/isa`)."""
