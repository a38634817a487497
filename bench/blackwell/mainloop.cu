// The main loop of a matrix product on one SM: one thread copies tiles of A and B through STAGES buffers, another
// issues TILE_K / 16 products for each and lets go of the buffer when they are done.
#include <cstdint>
#include <cuda.h>

constexpr uint32_t kDescriptor = uint32_t(1 << 4 | 1 << 7 | 1 << 10) | uint32_t(TILE_N / 8) << 17 | uint32_t(TILE_M / 16) << 24;
constexpr int kBytesA = TILE_M * TILE_K * 2, kBytesB = TILE_N * TILE_K * 2;

__device__ uint32_t at(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ uint32_t is_done(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

__device__ void wait(uint32_t barrier, uint32_t parity, uint32_t done = 0) {
  while (!done) done = is_done(barrier, parity);
}

__device__ bool elect() {
  uint32_t chosen;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
  return chosen;
}

__device__ void fetch(const CUtensorMap *map, uint32_t to, uint32_t barrier, int k) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(to), "l"(map), "r"(k), "r"(0), "r"(barrier) : "memory");
}

// Of a tile in rows of 128 swizzled bytes; low: its address in units of 16 bytes, which products step through.
__device__ uint64_t tile_descriptor(uint32_t low) {
  return uint64_t(low) | uint64_t(64) << 32 | uint64_t(1) << 46 | uint64_t(2) << 61;
}

extern "C" __global__ void mainloop(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, int steps) {
  extern __shared__ __align__(1024) char tiles[];
  __shared__ uint64_t full[STAGES], empty[STAGES], finished;
  __shared__ uint32_t columns;
  __shared__ volatile uint32_t places[3];  // of tiles, full and empty: read once, or the compiler asks for them again each time
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 256;" ::"r"(at(&columns)));
  }
  if (threadIdx.x == 0) {
    places[0] = at(tiles), places[1] = at(full), places[2] = at(empty);
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&full[s])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&empty[s])));
    }
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&finished)));
  }
  __syncthreads();
  int stage = 0;
  uint32_t parity = 0;
  const uint32_t first_tile = places[0], first_full = places[1], first_empty = places[2];
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0);
  uint32_t ready = 0;  // looked at before it is needed
  if (warp == 0) {
    for (int k = 0; k < steps; ++k) {
      wait(first_empty + 8 * stage, parity ^ 1, ready);
      if (elect()) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(first_full + 8 * stage), "n"(kBytesA + kBytesB));
      const uint32_t to = first_tile + stage * (kBytesA + kBytesB);
      fetch(&a, to, first_full + 8 * stage, k * TILE_K);
      fetch(&b, to + kBytesA, first_full + 8 * stage, k * TILE_K);
      }
      __syncwarp();
      if (++stage == STAGES) { stage = 0; parity ^= 1; }
      ready = is_done(first_empty + 8 * stage, parity ^ 1);
    }
  } else if (warp == 1) {
    const uint32_t d = columns, first = (first_tile >> 4 & 0x3FFF) | 1 << 16;
    for (int k = 0; k < steps; ++k) {
      wait(first_full + 8 * stage, parity, ready);
      if (elect()) {
      const uint32_t from = first + stage * ((kBytesA + kBytesB) / 16);
#pragma unroll
      for (int i = 0; i < TILE_K / 16; ++i) {
        asm volatile("{ .reg .pred p; setp.ne.u32 p, 1, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d),
                     "l"(tile_descriptor(from + 2 * i)), "l"(tile_descriptor(from + kBytesA / 16 + 2 * i)), "r"(kDescriptor));
      }
      asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" ::"l"(uint64_t(first_empty + 8 * stage)));
      }
      __syncwarp();
      if (++stage == STAGES) { stage = 0; parity ^= 1; }
      ready = is_done(first_full + 8 * stage, parity);
    }
    if (elect()) asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" ::"l"(uint64_t(at(&finished))));
    wait(at(&finished), 0);
  }
  __syncthreads();
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 256;" ::"r"(columns));
}
