"""Models by name: one file each, with `NAME` and `predict(model_input) -> ModelResult`."""
