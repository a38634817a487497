"""Readers: bytes of some toolchain to an `analyzer.ir.program.Module`, one file per input."""
