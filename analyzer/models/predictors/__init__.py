"""The models by name: one file each, with `predict(situation) -> Verdict`."""
