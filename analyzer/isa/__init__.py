"""What the instruction set says: opcodes, operand roles, matrix shapes, control bits (`hwdb/isa`)."""
