"""Control flow and data flow of a kernel: basic blocks, dominators, loops, def-use chains."""
