"""Identity of the code in a stored report, from its listing."""

import hashlib

from analyzer.comparison.alignment import drop_target
from analyzer.report.analyze_schema import KernelReport

_VERSION = b"warplens reported code 1\n"


def digest_reported_code(report: KernelReport) -> str:
    """Return the SHA-256 of a listing, its control flow and the kernel's resources; "" without a listing.

    Reports have no label addresses, so that targets of branches come from the successors of the basic blocks.
    The digest compares reports with each other, not with those of `code_identity`.
    """
    if not report.listing:
        return ""
    base = report.listing[0].address
    digest = hashlib.sha256(_VERSION)
    facts = (report.architecture, report.registers, report.shared_bytes, report.stack_frame_bytes)
    digest.update(repr(facts).encode())
    for entry in report.listing:
        digest.update(f"{drop_target(entry.instruction)}\t{entry.control}\n".encode("utf-8", "surrogatepass"))
    for block in report.counts.blocks:
        targets = sorted(address - base for address in block.successors)
        digest.update(f"{block.start - base}-{block.end - base}: {targets}\n".encode())
    return digest.hexdigest()
