// A whole matrix product, C = A * B^T in BF16, in six steps from the plainest use of the tensor core to what libraries
// ship. STEP says which:
//   1  boxes of 16 bytes, no swizzle; all warps go round the loop, a thread of one of them copies and multiplies
//   2  a box for each operand, swizzled by 128 bytes
//   3  STAGES buffers: one warp copies ahead and multiplies, nobody waits for a product before the next copy
//   4  a warp copies, a warp multiplies, four store
//   5  two CTAs multiply a tile of 256 rows together: each has half of B
//   6  as many CTAs as there are SMs go from tile to tile; a tile is stored while the next is multiplied
// EARLY=1 has warps with parts look at the next buffer before they need it, as CUTLASS does, EARLY=2 behind the last as well.
// TILE_N, TILE_K and STAGES are the tile; COLUMNS is what a CTA takes of tensor memory; PAIRED=0 has step 6 without pairs.
// BAND=8 walks the tiles down eight columns of them at a time, so that what runs at once shares more.
// TABLE=1 reads the tile of each turn from a table in memory, one more argument: two words a tile. TABLE=2 has a list of
// row << 16 | column for each pair of CTAs, kListed words long, which ends with -1.
#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>

#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef TILE_K
#define TILE_K 64
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef PAIRED
#define PAIRED (STEP >= 5)
#endif
#ifndef COLUMNS
#define COLUMNS (STEP == 6 ? 2 * TILE_N : TILE_N)
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef BAND
#define BAND 0
#endif
#ifndef TABLE
#define TABLE 0
#endif
#if TABLE == 2
#define TABLE_ARGUMENT , const int *table
#elif TABLE
#define TABLE_ARGUMENT , const int2 *table
#else
#define TABLE_ARGUMENT
#endif
#if PAIRED
#define GROUP "cta_group::2"
#define CLUSTER __cluster_dims__(2, 1, 1)
#else
#define GROUP "cta_group::1"
#define CLUSTER
#endif

constexpr int kCtas = PAIRED ? 2 : 1;
constexpr int kBuffers = STEP < 3 ? 1 : STAGES;
constexpr int kAccumulators = STEP == 6 ? 2 : 1;
constexpr int kWarps = STEP < 4 ? 4 : 6;
constexpr int kAllocator = 1;  // the warp that takes tensor memory, and multiplies where warps have parts
constexpr int kStoringWarps = 4;
constexpr int kRowsA = 128, kRowsB = TILE_N / kCtas;  // of a CTA
constexpr int kBytesA = kRowsA * TILE_K * 2, kBytesB = kRowsB * TILE_K * 2;
constexpr int kDepth = 16;          // of one product
constexpr int kPiece = 8;           // elements of 16 bytes: a row of what the tensor core reads at once
constexpr int kColumnsAtOnce = 32;  // that a warp loads from tensor memory
[[maybe_unused]] constexpr int kListed = 128;  // words of the table for a pair
constexpr uint32_t kSleep = 10'000'000;       // ns that a wait may sleep, as CUTLASS has it
[[maybe_unused]] constexpr uint32_t kOfLeader = 0xFEFFFFFF;    // the same address in the even CTA of a pair
constexpr uint32_t kDescriptor =
    uint32_t(1 << 4 | 1 << 7 | 1 << 10) | uint32_t(TILE_N / 8) << 17 | uint32_t(kRowsA * kCtas / 16) << 24;

struct Tile {
  int row, column;  // of C: the first of this CTA's
};

struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == kBuffers) { stage = 0; parity ^= 1; }
  }
};

__device__ uint32_t at(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ bool elect() {
  uint32_t chosen;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
  return chosen;
}

__device__ uint32_t rank_in_pair() {
  uint32_t rank = 0;
  if constexpr (PAIRED) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// What was initialized or taken is seen by both CTAs of a pair.
__device__ void meet() {
  if constexpr (PAIRED) {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  } else {
    __syncthreads();
  }
}

__device__ void init(uint64_t *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(arrivals));
}

__device__ void wait(uint64_t *barrier, uint32_t parity) {
  asm volatile("{ .reg .pred p;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, %2;\n"
               "@p bra done;\n"
               "bra again;\n"
               "done: }" ::"r"(at(barrier)), "r"(parity), "n"(kSleep) : "memory");
}

// What a wait need not wait for; it may look again.
__device__ bool is_over(uint64_t *barrier, uint32_t parity) {
  if constexpr (EARLY == 0) return false;
  uint32_t over;
  asm volatile("{ .reg .pred p;\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
               "selp.b32 %0, 1, 0, p; }" : "=r"(over) : "r"(at(barrier)), "r"(parity) : "memory");
  return over;
}

__device__ void expect(uint64_t *barrier, int n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(n_bytes) : "memory");
}

// In a pair the leader's barrier counts the bytes of both.
__device__ void fetch_box(const CUtensorMap *map, uint32_t to, uint64_t *barrier, int k, int row) {
#if PAIRED
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes." GROUP
               " [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(at(barrier) & kOfLeader) : "memory");
#else
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(at(barrier)) : "memory");
#endif
}

// Without swizzle a box is a column of 16-byte pieces, so that eight rows are 128 bytes in one place.
__device__ void fetch(const CUtensorMap *map, uint32_t to, uint64_t *barrier, int k, int row, int rows) {
  if constexpr (STEP == 1) {
    for (int i = 0; i < TILE_K; i += kPiece) fetch_box(map, to + i * rows * 2, barrier, k + i, row);
  } else {
    fetch_box(map, to, barrier, k, row);
  }
}

// Of a tile's elements from depth k on: strides of the next 16 bytes and of the next eight rows, and the swizzle.
__device__ uint64_t tile_descriptor(uint32_t tile, int rows, int k) {
  constexpr uint64_t version = uint64_t(1) << 46;
  if constexpr (STEP == 1) {
    return uint64_t((tile + k * rows * 2) >> 4 & 0x3FFF) | uint64_t(rows) << 16 | uint64_t(128 >> 4) << 32 | version;
  } else {
    return uint64_t((tile + k * 2) >> 4 & 0x3FFF) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | version | uint64_t(2) << 61;
  }
}

__device__ void multiply(uint32_t d, uint32_t tile, bool adds) {
#pragma unroll
  for (int k = 0; k < TILE_K; k += kDepth) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma." GROUP ".kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d),
                 "l"(tile_descriptor(tile, kRowsA, k)), "l"(tile_descriptor(tile + kBytesA, kRowsB, k)), "r"(kDescriptor),
                 "r"(uint32_t(adds || k)));
  }
}

// The barrier, in a pair that of each CTA, is arrived at when the products so far are done.
__device__ void commit(uint64_t *barrier) {
#if PAIRED
  asm volatile("tcgen05.commit." GROUP ".mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
               ::"r"(at(barrier)), "h"(uint16_t(3)) : "memory");
#else
  asm volatile("tcgen05.commit." GROUP ".mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(at(barrier)) : "memory");
#endif
}

__device__ void arrive_at_leader(uint64_t *barrier) {
#if PAIRED
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(at(barrier) & kOfLeader) : "memory");
#else
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(barrier)) : "memory");
#endif
}

__device__ void see_products() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

__device__ void load_columns(uint32_t from, uint32_t (&v)[kColumnsAtOnce]) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\n"
               "tcgen05.wait::ld.sync.aligned;"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]), "=r"(v[8]),
                 "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15]), "=r"(v[16]),
                 "=r"(v[17]), "=r"(v[18]), "=r"(v[19]), "=r"(v[20]), "=r"(v[21]), "=r"(v[22]), "=r"(v[23]), "=r"(v[24]),
                 "=r"(v[25]), "=r"(v[26]), "=r"(v[27]), "=r"(v[28]), "=r"(v[29]), "=r"(v[30]), "=r"(v[31])
               : "r"(from));
}

__device__ uint32_t pack(uint32_t low, uint32_t high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(__uint_as_float(low), __uint_as_float(high));
  return *reinterpret_cast<const uint32_t *>(&both);
}

// A thread has a row; the loop is left a loop so that the dump stays short.
__device__ void store(uint32_t from, __nv_bfloat16 *row) {
#pragma unroll 1
  for (int column = 0; column < TILE_N; column += kColumnsAtOnce) {
    uint32_t v[kColumnsAtOnce];
    load_columns(from + column, v);
#pragma unroll
    for (int i = 0; i < kColumnsAtOnce; i += kPiece) {
      reinterpret_cast<uint4 *>(row + column + i)[0] = {pack(v[i], v[i + 1]), pack(v[i + 2], v[i + 3]), pack(v[i + 4], v[i + 5]),
                                                        pack(v[i + 6], v[i + 7])};
    }
  }
}

// Calls work(number of the tile, turn): once, or for each tile of a CTA that stays.
template <typename Work> __device__ void for_tiles(int tiles, [[maybe_unused]] const void *table, Work work) {
  const int first = blockIdx.x / kCtas;
  if constexpr (STEP < 6) {
    work(first, 0);
  } else if constexpr (TABLE == 2) {
    const int *list = static_cast<const int *>(table) + first * kListed;
    for (int turn = 0, tile = __ldg(list); tile >= 0; tile = __ldg(&list[++turn])) work(tile, turn);
  } else {
    for (int number = first, turn = 0; number < tiles; number += gridDim.x / kCtas, ++turn) work(number, turn);
  }
}

extern "C" __global__ __launch_bounds__(kWarps * 32) CLUSTER void products(
    const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, __nv_bfloat16 *c, int m, int n, int depth TABLE_ARGUMENT) {
  extern __shared__ __align__(1024) char buffers[];
  __shared__ uint64_t full[kBuffers], empty[kBuffers], finished[kAccumulators], stored[kAccumulators];
  __shared__ uint32_t columns;
  const int warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0);
  const uint32_t rank = rank_in_pair();
  if (warp == 0 && elect()) {
    for (int i = 0; i < kBuffers; ++i) {
      init(&full[i], 1);
      init(&empty[i], 1);
    }
    for (int i = 0; i < kAccumulators; ++i) {
      init(&finished[i], 1);
      init(&stored[i], kStoringWarps * kCtas);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  } else if (warp == kAllocator) {
    asm volatile("tcgen05.alloc." GROUP ".sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(at(&columns)), "n"(COLUMNS) : "memory");
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  meet();
  see_products();
  const uint32_t d = columns;
  const int steps = depth / TILE_K, across = n / TILE_N;
  [[maybe_unused]] const int tiles = across * (m / (kRowsA * kCtas));
#if !TABLE
  constexpr void *table = nullptr;
#endif

  const auto buffer = [&](int stage) { return at(buffers) + stage * (kBytesA + kBytesB); };
  const auto tile_of = [&](int number) {
#if TABLE == 2
    return Tile{((number >> 16) * kCtas + int(rank)) * kRowsA, (number & 0xFFFF) * TILE_N};
#elif TABLE
    const int2 place = __ldg(&table[number]);  // row and column of the tile
    return Tile{(place.x * kCtas + int(rank)) * kRowsA, place.y * TILE_N};
#elif BAND
    const int down = m / (kRowsA * kCtas), band = number / (down * BAND), within = number % (down * BAND);
    return Tile{(within / BAND * kCtas + int(rank)) * kRowsA, (band * BAND + within % BAND) * TILE_N};
#else
    return Tile{(number / across * kCtas + int(rank)) * kRowsA, number % across * TILE_N};
#endif
  };
  const auto copy = [&](Tile tile, int k, int stage) {
    if (rank == 0) expect(&full[stage], (kBytesA + kBytesB) * kCtas);
    fetch(&a, buffer(stage), &full[stage], k * TILE_K, tile.row, kRowsA);
    fetch(&b, buffer(stage) + kBytesA, &full[stage], k * TILE_K, tile.column + int(rank) * kRowsB, kRowsB);
  };
  const auto store_tile = [&](Tile tile, int accumulator) {
    const int quarter = warp % 4;  // of the 128 lanes of tensor memory, the ones that this warp may read
    const int row = tile.row + quarter * 32 + threadIdx.x % 32;
    store(d + accumulator * TILE_N + (quarter * 32 << 16), c + size_t(row) * n + tile.column);
  };

#if STEP < 3
  const Tile tile = tile_of(blockIdx.x);
  for (int k = 0; k < steps; ++k) {
    if (warp == 0 && elect()) copy(tile, k, 0);
    wait(&full[0], k & 1);
    see_products();
    if (warp == 0 && elect()) {
      multiply(d, buffer(0), k > 0);
      commit(&empty[0]);
    }
    wait(&empty[0], k & 1);
  }
  see_products();
  store_tile(tile, 0);
#elif STEP == 3
  const Tile tile = tile_of(blockIdx.x);
  if (warp == 0) {
    for (int k = 0; k < STAGES - 1; ++k) {
      if (elect()) copy(tile, k, k);
    }
    Place place;
    for (int k = 0; k < steps; ++k) {
      if (k + STAGES - 1 < steps) {  // into the buffer of the product before
        if (k > 0) wait(&empty[(k - 1) % STAGES], (k - 1) / STAGES & 1);
        if (elect()) copy(tile, k + STAGES - 1, (k + STAGES - 1) % STAGES);
        __syncwarp();
      }
      wait(&full[place.stage], place.parity);
      see_products();
      if (elect()) {
        multiply(d, buffer(place.stage), k > 0);
        commit(&empty[place.stage]);
      }
      __syncwarp();
      place.advance();
    }
    if (elect()) commit(&finished[0]);
    __syncwarp();
  }
  wait(&finished[0], 0);
  see_products();
  store_tile(tile, 0);
#else
  if (warp == 0) {
    Place place;
    for_tiles(tiles, table, [&](int number, int) {
      const Tile tile = tile_of(number);
      bool ready = is_over(&empty[place.stage], place.parity ^ 1);
      for (int k = 0; k < steps; ++k) {
        if (!ready) wait(&empty[place.stage], place.parity ^ 1);
        if (elect()) copy(tile, k, place.stage);
        __syncwarp();
        place.advance();
        if (EARLY == 2 || k + 1 < steps) ready = is_over(&empty[place.stage], place.parity ^ 1);
      }
    });
  } else if (warp == kAllocator) {
    if (rank == 0) {
      Place place;
      for_tiles(tiles, table, [&](int, int turn) {
        const int accumulator = turn % kAccumulators;
        if constexpr (STEP == 6) {
          wait(&stored[accumulator], (turn / kAccumulators & 1) ^ 1);
          see_products();
        }
        bool ready = is_over(&full[place.stage], place.parity);
        for (int k = 0; k < steps; ++k) {
          if (!ready) wait(&full[place.stage], place.parity);
          see_products();
          Place next = place;
          next.advance();
          if (EARLY == 2 || k + 1 < steps) ready = is_over(&full[next.stage], next.parity);
          if (elect()) {
            multiply(d + accumulator * TILE_N, buffer(place.stage), k > 0);
            commit(&empty[place.stage]);
          }
          __syncwarp();
          place = next;
        }
        if (elect()) commit(&finished[accumulator]);
        __syncwarp();
      });
    }
  } else {
    for_tiles(tiles, table, [&](int number, int turn) {
      const int accumulator = turn % kAccumulators;
      wait(&finished[accumulator], turn / kAccumulators & 1);
      see_products();
      store_tile(tile_of(number), accumulator);
      if constexpr (STEP == 6) {
        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
        __syncwarp();
        if (elect()) arrive_at_leader(&stored[accumulator]);
      }
    });
  }
#endif
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  meet();
  if (warp == kAllocator) {
    asm volatile("tcgen05.relinquish_alloc_permit." GROUP ".sync.aligned;\n"
                 "tcgen05.dealloc." GROUP ".sync.aligned.b32 %0, %1;" ::"r"(d), "n"(COLUMNS));
  }
}
