"""Readers of dumps, binaries and traces: each returns an `analyzer.ir.module.Module`."""
