"""Traffic between an SM, the L2 and DRAM: DRAM windows of a grid and simulated hit rates."""
