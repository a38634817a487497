"""The learned correction of `sm`: what it reads of a simulated launch, and its weights."""
