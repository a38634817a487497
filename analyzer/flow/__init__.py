"""Control and data flow: blocks and edges, dominators, loops, def-use."""
