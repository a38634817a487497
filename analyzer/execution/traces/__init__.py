"""Executions recorded warp by warp, and recorded traces turned into execution profiles."""
