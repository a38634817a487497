"""Learned parts of models: inference in numpy, weights as safetensors; `analyzer.learning` makes them."""
