"""What the L2 keeps of one launch for the next: a curve of the bytes touched, by two figures of the database.

Up to `kept_share` of the L2 the next launch finds all, from `lost_share` on nothing, and between them the
share that is lost rises in proportion.

Example: an H100 (50 MB, .69 and .8) has lost half of 37 MB that a launch read.
"""

from msgspec import Struct

from analyzer.hardware.gpu import Gpu


class L2Retention(Struct, frozen=True):
    """Working sets of which the next launch finds all, and nothing."""

    kept_bytes: float
    lost_bytes: float

    @property
    def half_lost_bytes(self) -> float:
        """Working set of which half is lost."""
        return 0.5 * (self.kept_bytes + self.lost_bytes)

    def compute_lost_share(self, touched_bytes: float) -> float:
        """Return the share of data that the L2 has lost when so many bytes have been accessed since."""
        if touched_bytes <= self.kept_bytes:
            return 0.0
        if touched_bytes >= self.lost_bytes:
            return 1.0
        return (touched_bytes - self.kept_bytes) / (self.lost_bytes - self.kept_bytes)


def read_l2_retention(gpu: Gpu) -> L2Retention:
    """Return the product's curve; what its file lacks is the architecture's, or the middle of those known."""
    l2 = gpu.file.l2
    figure = l2.kept_share or (gpu.arch.memory.l2_kept_share if gpu.arch else None)
    kept = _USUAL_KEPT_SHARE if figure is None else figure.value
    lost = kept if l2.lost_share is None else max(kept, l2.lost_share.value)
    return L2Retention(l2.size_bytes.value * kept, l2.size_bytes.value * lost)


_USUAL_KEPT_SHARE = 0.7  # of GPUs without an architecture
