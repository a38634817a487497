// Copies of TILE bytes by the copy engine, STAGES in flight, by one thread that waits for each in turn.
#include <cstdint>
#include <cuda.h>
__device__ uint32_t at(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void fetch(const CUtensorMap *map, uint32_t to, uint32_t barrier, int row) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(WIDTH * HEIGHT * 4));
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(to), "l"(map), "r"(0), "r"(row), "r"(barrier) : "memory");
}
__device__ bool is_done(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}
extern "C" __global__ void tma(const __grid_constant__ CUtensorMap map, int copies) {
  extern __shared__ __align__(1024) char tiles[];
  __shared__ uint64_t barriers[STAGES];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < STAGES; ++s) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&barriers[s])));
  constexpr int kTile = WIDTH * HEIGHT * 4;
  int row = blockIdx.x * HEIGHT;
  for (int s = 0; s < STAGES; ++s) { fetch(&map, at(tiles) + s * kTile, at(&barriers[s]), row); row += gridDim.x * HEIGHT; }
  int stage = 0;
  uint32_t parity = 0;
  for (int i = STAGES; i < copies; ++i) {
    while (!is_done(at(&barriers[stage]), parity)) {}
    fetch(&map, at(tiles) + stage * kTile, at(&barriers[stage]), row);
    row += gridDim.x * HEIGHT;
    if (++stage == STAGES) { stage = 0; parity ^= 1; }
  }
  for (int s = 0; s < STAGES; ++s) {
    while (!is_done(at(&barriers[stage]), parity)) {}
    if (++stage == STAGES) { stage = 0; parity ^= 1; }
  }
}
