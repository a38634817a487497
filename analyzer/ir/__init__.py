"""The program as values: opcodes, operands, control fields, instructions, kernels, modules."""
