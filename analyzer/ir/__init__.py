"""The intermediate representation: opcodes, operands, control fields, instructions, kernels, modules."""
