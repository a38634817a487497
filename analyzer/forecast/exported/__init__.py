"""Programs of torch.export as tensor graphs: from `.pt2` archives without torch, or from live programs."""
