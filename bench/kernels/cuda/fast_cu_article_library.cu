// BF16 GEMM C = A * B with WGMMA and TMA, steps 2 to 6, whose barriers are the C++ library's: A row-major,
// B column-major (both K contiguous), C column-major; THREADS threads compute tiles of BM x BN.
//   STAGES 0  one warp group fetches a tile of A and one of B, each with a barrier of its own, and multiplies
//   STAGES n  warp group 0 fetches through a queue of n slots, the others multiply
//   CTAS   0  a CTA for each tile; n: as many persistent ones, tiles in groups
#include "fast_cu_article_products.cuh"

#include <cuda/barrier>
#include <utility>

using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace bulk = cuda::device::experimental;

constexpr int CONSUMERS = STAGES ? THREADS / 128 - 1 : 1;
constexpr int PARTS = BM / 64 / CONSUMERS;  // of 64 rows, for each warp group that multiplies
constexpr int A_BYTES = BM * BK * sizeof(bf16);
constexpr int B_BYTES = BN * BK * sizeof(bf16);

struct Tile {
    int row;
    int column;
};

__device__ __forceinline__ bool next_tile(Tile& tile, int turn, int tiles_m, int tiles_n) {
#if CTAS > 0
    constexpr int GROUP_M = 16;  // tiles of a group: neighbouring CTAs share rows of A and columns of B
    constexpr int GROUP_N = 8;
    const int index = turn * CTAS + blockIdx.x;
    if (index >= tiles_m * tiles_n) return false;
    const int group = index / (GROUP_M * GROUP_N);
    const int within = index % (GROUP_M * GROUP_N);
    const int groups_n = tiles_n / GROUP_N;
    tile = {group / groups_n * GROUP_M + within % GROUP_M, group % groups_n * GROUP_N + within / GROUP_M};
    return true;
#else
    tile = {static_cast<int>(blockIdx.x) / tiles_n, static_cast<int>(blockIdx.x) % tiles_n};
    return turn == 0;
#endif
}

// All products of a tile of A and one of B in shared memory.
__device__ __forceinline__ void multiply(float (&sums)[PARTS][BN / 16][8], const bf16* a, const bf16* b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const bf16* rows = a + part * 64 * BK;
#pragma unroll
        for (int k = 0; k < BK; k += 16) wgmma<1>(sums[part], descriptor(rows + k), descriptor(b + k));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ void clear(float (&sums)[PARTS][BN / 16][8]) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        for (int i = 0; i < BN / 16; ++i) {
            for (int j = 0; j < 8; ++j) sums[part][i][j] = 0.0f;
        }
    }
}

__device__ __forceinline__ void store(const float (&sums)[PARTS][BN / 16][8], bf16* C, int M, int row,
                                      int column) {
    const int thread = threadIdx.x % 128;
    bf16* c = C + (column + thread % 4 * 2) * M + row + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        for (int i = 0; i < BN / 16; ++i) {
            for (int j = 0; j < 8; ++j) {
                c[(16 * i + j / 4 * 8 + j % 2) * M + part * 64 + j / 2 % 2 * 8] =
                    __float2bfloat16(sums[part][i][j]);
            }
        }
    }
}

#if STAGES
struct Shared {
    alignas(128) bf16 a[STAGES * BM * BK];
    alignas(128) bf16 b[STAGES * BN * BK];
};

extern "C" __global__ void __launch_bounds__(THREADS)
    library_gemm(int M, int N, int K, bf16* C,
#if CTAS
                 const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map) {
#define MAP(map) &map
#else
                 const CUtensorMap* a_map, const CUtensorMap* b_map) {
#define MAP(map) map
#endif
    extern __shared__ __align__(128) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    __shared__ Barrier full[STAGES];
    __shared__ Barrier empty[STAGES];
    const int steps = K / BK;
    const int group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(&full[i], CONSUMERS * 128 + 1);
            init(&empty[i], CONSUMERS * 128 + 1);
        }
        bulk::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Tile tile;
    int slot = 0;
    if (group == 0) {
#if THREADS > 256
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
#endif
        if (threadIdx.x == 0) {
            for (int turn = 0; next_tile(tile, turn, M / BM, N / BN); ++turn) {
                for (int step = 0; step < steps; ++step) {
                    empty[slot].wait(empty[slot].arrive());
                    bulk::cp_async_bulk_tensor_2d_global_to_shared(&shared.a[slot * BM * BK], MAP(a_map), step * BK,
                                                                   tile.row * BM, full[slot]);
                    bulk::cp_async_bulk_tensor_2d_global_to_shared(&shared.b[slot * BN * BK], MAP(b_map), step * BK,
                                                                   tile.column * BN, full[slot]);
                    static_cast<void>(cuda::device::barrier_arrive_tx(full[slot], 1, A_BYTES + B_BYTES));
                    if (++slot == STAGES) slot = 0;
                }
            }
        }
    } else {
#if THREADS > 256
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
#endif
        const int consumer = CONSUMERS > 1 ? group - 1 : 0;
        for (int i = 0; i < STAGES; ++i) static_cast<void>(empty[i].arrive());
        float sums[PARTS][BN / 16][8];
        for (int turn = 0; next_tile(tile, turn, M / BM, N / BN); ++turn) {
            clear(sums);
            for (int step = 0; step < steps; ++step) {
                full[slot].wait(full[slot].arrive());
                multiply(sums, shared.a + slot * BM * BK + consumer * PARTS * 64 * BK, shared.b + slot * BN * BK);
                static_cast<void>(empty[slot].arrive());
                if (++slot == STAGES) slot = 0;
            }
            store(sums, C, M, tile.row * BM + consumer * PARTS * 64, tile.column * BN);
        }
    }
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
    library_gemm(int M, int N, int K, bf16* C, const CUtensorMap* a_map, const CUtensorMap* b_map, int*) {
    __shared__ alignas(128) bf16 a[BM * BK];
    __shared__ alignas(128) bf16 b[BN * BK];
    __shared__ Barrier a_full, b_full;
    if (threadIdx.x == 0) {
        init(&a_full, THREADS);
        init(&b_full, THREADS);
        bulk::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Tile tile;
    next_tile(tile, 0, M / BM, N / BN);
    float sums[PARTS][BN / 16][8];
    clear(sums);
    Barrier::arrival_token a_token, b_token;
    // Of this warp group: 0, but the compiler cannot know, and so forms addresses in each thread.
    const int first_row = PARTS > 1 ? threadIdx.x / 128 * BM : 0;
    const int first_column = PARTS > 1 ? threadIdx.x / 128 * BN : 0;
    for (int step = 0; step < K / BK; ++step) {
        if (threadIdx.x == 0) {
            bulk::cp_async_bulk_tensor_2d_global_to_shared(a, a_map, step * BK, tile.row * BM, a_full);
            a_token = cuda::device::barrier_arrive_tx(a_full, 1, A_BYTES);
            bulk::cp_async_bulk_tensor_2d_global_to_shared(b, b_map, step * BK, tile.column * BN, b_full);
            b_token = cuda::device::barrier_arrive_tx(b_full, 1, B_BYTES);
        } else {
            a_token = a_full.arrive();
            b_token = b_full.arrive();
        }
        a_full.wait(std::move(a_token));
        b_full.wait(std::move(b_token));
        __syncthreads();
        multiply(sums, a + first_row * BK, b + first_column * BK);
    }
    store(sums, C, M, tile.row * BM + first_row, tile.column * BN + first_column);
}
#endif
