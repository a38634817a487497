"""Readers: bytes of some toolchain to an `analyzer.ir.module.Module`, one file per input."""
