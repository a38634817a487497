// BF16 GEMM C = A * B with WGMMA and TMA, steps 7 to 11: A row-major, B column-major (both K
// contiguous), C column-major. CTAS persistent CTAs compute tiles of BM x BN; one thread of warp group 0
// loads, each other group multiplies 64 rows. Tiles of A and B pass through a queue of STAGES slots, each
// with an mbarrier that says full and one that says empty. Steps differ in
//   CLUSTER  2: two CTAs above each other share B, each loads half of it for both
//   KEEP     sums start from the first product (1), or from zeros (0)
//   STORE    0 elements from registers, 1 the same in another order and streamed, 2 by TMA, asynchronously
//   CURVE    which tile a CTA takes comes from a table, along a Hilbert curve (1), or in groups (0)
#include "fast_cu_article_products.cuh"

constexpr int CONSUMERS = THREADS / 128 - 1;
constexpr int GROUP_M = 16;  // tiles of a group: neighbouring CTAs share rows of A and columns of B
constexpr int GROUP_N = 8;
constexpr int A_ELEMENTS = BM * BK;
constexpr int B_ELEMENTS = BN * BK;
constexpr int SLOT_BYTES = (A_ELEMENTS + B_ELEMENTS) * sizeof(bf16);
constexpr int MOST_TILES = 128;  // that the table has for a CTA

__device__ __forceinline__ void init_barrier(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

__device__ __forceinline__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Tells CTA `rank` of the cluster that this slot has been read.
__device__ __forceinline__ void arrive(uint64_t* barrier, uint32_t rank) {
#if CLUSTER > 1
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// A box of a matrix, from element (k, row), to shared memory; its bytes count on the barrier.
__device__ __forceinline__ void load(bf16* to, const CUtensorMap* map, uint64_t* barrier, int k, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(k), "r"(row)
        : "memory");
}

// The same, to all CTAs of the cluster.
__device__ __forceinline__ void load_for_all(bf16* to, const CUtensorMap* map, uint64_t* barrier, int k,
                                             int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(k), "r"(row),
        "h"(static_cast<uint16_t>((1 << CLUSTER) - 1))
        : "memory");
}

struct Tile {
    int row;
    int column;
};

// The tile of this CTA's turn, or one beyond the matrix where there is none. A cluster takes two tiles above
// each other.
__device__ __forceinline__ bool next_tile(Tile& tile, int turn, int tiles_m, int tiles_n, int rank,
                                          const int* table) {
#if CURVE
    const int packed = table[turn];
    if (packed < 0) return false;
    tile = {packed >> 16, packed & 0xFFFF};
    return true;
#else
    const int index = (turn * CTAS + blockIdx.x) / CLUSTER;
    if (index * CLUSTER >= tiles_m * tiles_n) return false;
    constexpr int ROWS = GROUP_M / CLUSTER;
    const int group = index / (ROWS * GROUP_N);
    const int within = index % (ROWS * GROUP_N);
    const int groups_n = tiles_n / GROUP_N;
    tile = {(group / groups_n * ROWS + within % ROWS) * CLUSTER + rank,
            group % groups_n * GROUP_N + within / ROWS};
    return true;
#endif
}

struct Shared {
    alignas(128) bf16 a[STAGES * A_ELEMENTS];
    alignas(128) bf16 b[STAGES * B_ELEMENTS];
#if STORE == 2
    alignas(128) bf16 c[BM * BN];
    alignas(8) uint64_t full[STAGES];
    uint64_t empty[STAGES];
#endif
#if CURVE
    alignas(128) int table[MOST_TILES];
#endif
};

#if CLUSTER > 1
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

extern "C" __global__ void __launch_bounds__(THREADS) IN_CLUSTERS
    wgmma_gemm(int M, int N, int K,
#if STORE == 2
               const __grid_constant__ CUtensorMap c_map,
#else
               bf16* C,
#endif
               const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map
#if CURVE
               ,
               const int* tables
#endif
    ) {
    extern __shared__ __align__(128) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
#if STORE == 2
    uint64_t* full = shared.full;
    uint64_t* empty = shared.empty;
#else
    __shared__ __align__(64) uint64_t full[STAGES];
    __shared__ __align__(64) uint64_t empty[STAGES];
#endif
    const int steps = K / BK;
    const int tiles_m = M / BM;
    const int tiles_n = N / BN;
    const int group = threadIdx.x / 128;
    const int thread = threadIdx.x % 128;
    uint32_t rank = 0;
#if CLUSTER > 1
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(&full[i], 1);
            init_barrier(&empty[i], CONSUMERS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    const int* table = nullptr;
#if CURVE
    if (threadIdx.x < MOST_TILES) {
        shared.table[threadIdx.x] = tables[blockIdx.x * MOST_TILES + threadIdx.x];
    }
    table = shared.table;
#endif
#if CLUSTER > 1
    sync_cluster();
#else
    __syncthreads();
#endif

    Tile tile;
    int slot = 0;
    int parity = 0;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (thread == 0) {
            for (int turn = 0; next_tile(tile, turn, tiles_m, tiles_n, rank, table); ++turn) {
                for (int step = 0; step < steps; ++step) {
                    wait(&empty[slot], parity ^ 1);
                    expect_bytes(&full[slot], SLOT_BYTES);
                    load(&shared.a[slot * A_ELEMENTS], &a_map, &full[slot], step * BK, tile.row * BM);
#if CLUSTER > 1
                    constexpr int PART = BN / CLUSTER;
                    load_for_all(&shared.b[slot * B_ELEMENTS + rank * PART * BK], &b_map, &full[slot],
                                 step * BK, tile.column * BN + rank * PART);
#else
                    load(&shared.b[slot * B_ELEMENTS], &b_map, &full[slot], step * BK, tile.column * BN);
#endif
                    if (++slot == STAGES) {
                        slot = 0;
                        parity ^= 1;
                    }
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int consumer = group - 1;
        const int warp = thread / 32;
        const int lane = thread % 32;
        float sums[16][8];
        for (int turn = 0; next_tile(tile, turn, tiles_m, tiles_n, rank, table); ++turn) {
#if !KEEP
            for (int i = 0; i < 16; ++i) {
                for (int j = 0; j < 8; ++j) sums[i][j] = 0.0f;
            }
#endif
            for (int step = 0; step < steps; ++step) {
                wait(&full[slot], parity);
                const uint64_t a = descriptor(&shared.a[slot * A_ELEMENTS + consumer * 64 * BK]);
                const uint64_t b = descriptor(&shared.b[slot * B_ELEMENTS]);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#if KEEP
                if (step == 0) {
                    wgmma<0>(sums, a, b);
                } else {
                    wgmma<1>(sums, a, b);
                }
#else
                wgmma<1>(sums, a, b);
#endif
                // 16 of K are 32 bytes further in each row.
                for (int k = 1; k < BK / 16; ++k) wgmma<1>(sums, a + 2 * k, b + 2 * k);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                if (thread < CLUSTER) arrive(&empty[slot], thread);
                if (++slot == STAGES) {
                    slot = 0;
                    parity ^= 1;
                }
            }
            const int row = warp * 16 + lane / 4;
            const int column = lane % 4 * 2;
#if STORE == 2
            // The last store of this group must have read shared memory before it is written again.
            if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(consumer + 1) : "memory");
            bf16* part = shared.c + consumer * 64 * BN;
            for (int i = 0; i < 16; ++i) {
                for (int j = 0; j < 8; ++j) {
                    part[(16 * i + j / 4 * 8 + column + j % 2) * 64 + row + j / 2 % 2 * 8] =
                        __float2bfloat16(sums[i][j]);
                }
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(consumer + 1) : "memory");
            if (thread == 0) {
                asm volatile(
                    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                        &c_map),
                    "r"(shared_address(part)), "r"(tile.row * BM + consumer * 64), "r"(tile.column * BN)
                    : "memory");
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
#else
            bf16* c = C + (tile.column * BN + column) * M + tile.row * BM + consumer * 64 + row;
            for (int i = 0; i < 16; ++i) {
                for (int j = 0; j < 8; ++j) {
#if STORE == 1
                    // Neighbouring columns, then the rows eight below.
                    const int place = j / 4 * 8 + j / 2 % 2;
                    const bf16 value = __float2bfloat16(sums[i][j / 4 * 4 + j / 2 % 2 + j % 2 * 2]);
                    __stcs(&c[(16 * i + place) * M + j % 2 * 8], value);
#else
                    c[(16 * i + j / 4 * 8 + j % 2) * M + j / 2 % 2 * 8] = __float2bfloat16(sums[i][j]);
#endif
                }
            }
#endif
        }
#if STORE == 2
        if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    }
#if CLUSTER > 1
    // Shared memory must outlive what the other CTA still sends to it.
    sync_cluster();
#endif
}
