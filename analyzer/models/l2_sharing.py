"""How fast SMs get lines from the L2 that others ask for as well.

Requests of several SMs for a line that is under way are joined before the L2: it looks up fewer sectors than
SMs ask for. Counters of an H100 show .46 to 1.05 look-ups for each sector that products ask for
(traces/h100/l2_lookups.csv). CTAs of the first wave begin together and walk over K in step, so theirs are
joined most; the more waves have run, the less they are in step. On an H200, SMs that walk over the same data
in step get up to 19 TB/s, those that walk over their own 8.3 (traces/h200/memory.csv).

    look-ups for a request = 1 - (1 - distinct / requested bytes) (1 - share) + miss_lookups x DRAM share
    share = first_wave_lookup_share + lookup_share_growth ln(waves of CTAs), at most 1

A sector from the DRAM is looked up half a time more in the mean, since half of the data lie in the other part
of the L2. All this holds for copies of tiles to shared memory (LDGSTS, bulk copies): the counters are those
of products. What a CTA copies again itself counts as shared, which is too much.

Example: eight waves of a product ask for each line many times: .8 look-ups a request, so 8.3 TB/s of the
slices are 10.4 TB/s to the SMs; 9.8 where a tenth of what they ask for comes from the DRAM.
"""

import math

from msgspec import Struct

from analyzer.models.interface import ModelInput
from analyzer.models.miss_rates import compute_unique_byte_share


class CopyFactors(Struct, frozen=True):
    """Factors on the L2's time for a copied byte at its `bandwidth_gbps`, and on its look-ups."""

    requested: float = 1.0
    missed: float = 0.0  # beyond it, of a byte that comes from the DRAM
    lookups: float = 1.0  # for a request
    missed_requests: float = 0.0  # beyond it, for what comes from the DRAM


def compute_copy_factors(model_input: ModelInput) -> CopyFactors:
    """Return the factors of copies to shared memory; those of any load where the L2 says nothing of them."""
    l2 = model_input.gpu.file.l2
    slices, whole = l2.slice_gbps, l2.bandwidth_gbps
    distinct = compute_unique_byte_share(model_input)
    if slices is None or whole is None or distinct is None:
        return CopyFactors()
    joined = (1.0 - distinct) * (1.0 - _compute_lookup_share(model_input))
    factor = whole.value / slices.value
    missed = 0.0 if l2.miss_lookups is None else l2.miss_lookups.value
    missed_requests = missed if l2.miss_requests is None else l2.miss_requests.value
    return CopyFactors(factor * (1.0 - joined), factor * missed, 1.0 - joined, missed_requests)


def _compute_lookup_share(model_input: ModelInput) -> float:
    l2, resident = model_input.gpu.file.l2, model_input.occupancy.ctas_per_sm * model_input.gpu.sm_count
    if l2.first_wave_lookup_share is None or l2.lookup_share_growth is None:
        return 1.0
    waves = max(1.0, model_input.grid_ctas / max(1, resident))
    return min(1.0, l2.first_wave_lookup_share.value + l2.lookup_share_growth.value * math.log(waves))
