"""The abstract machine: many warps at once, 32 lanes wide, with divergence, memories and a step budget."""
