"""Models of papers, and simple ones, that ours are compared with; each joins by an entry point."""
