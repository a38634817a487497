"""Build kernels with published measured times, written anew, and check them against the table."""
