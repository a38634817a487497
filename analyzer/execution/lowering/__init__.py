"""Instructions lowered for abstract execution: the slice that control and addresses need, as segments."""
