// BF16 GEMM with FP32 sums, C = A * B: A row-major, B column-major (both K contiguous), C row-major BF16,
// mma.sync m16n8k16. A CTA computes BM x BN, WARPS_M x WARPS_N warps share it, BK deep per step; tiles of A
// and B lie in dynamic shared memory, rows of ROW elements. Steps differ in
//   ASYNC    tiles go through registers (0) or by cp.async (1)
//   ROW      elements per row in shared memory: BK, or padded
//   SWIZZLE  16-byte chunks of a row permuted by its number
//   PAIR_B   ldmatrix.x4 reads B for two steps of 8 columns at once
//   STAGES   2: the next tile is copied while this one is multiplied
//   GROUP    CTAs ordered in groups of so many rows of blocks; 0: row after row
// MIN_CTAS is what registers are allotted for.
#include <cuda_bf16.h>

using bf16 = __nv_bfloat16;

constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int WARP_M = BM / WARPS_M;
constexpr int WARP_N = BN / WARPS_N;
constexpr int STEPS_M = WARP_M / 16;
constexpr int STEPS_N = WARP_N / 8;
constexpr int CHUNK = 16 / sizeof(bf16);  // elements of 16 bytes
constexpr int ROW_BYTES = ROW * sizeof(bf16);
constexpr int A_BYTES = BM * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + BN * ROW_BYTES;

using Sums = float[STEPS_M][STEPS_N][4];

__device__ __forceinline__ void mma(float* d, const unsigned* a, const unsigned* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void load_4(unsigned* r, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_2(unsigned* r, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address));
}

// Byte offset in a tile of the 16-byte chunk that holds this element. Swizzled, eight rows that ldmatrix
// reads at once start in eight different chunks of 128 bytes.
__device__ __forceinline__ unsigned tile_offset(int row, int column) {
    const int chunk = column / CHUNK;
    return row * ROW_BYTES + (SWIZZLE ? chunk ^ (row % 8) : chunk) * 16;
}

// Copies turns FIRST to END of a tile to shared memory, from a matrix with rows of `stride`: 16 bytes
// per thread and turn. Row and column are added to the address at once, or APART, with more instructions.
template <int FIRST, int END, bool APART, typename Index>
__device__ __forceinline__ void copy_turns(const bf16* from, int stride, unsigned to) {
    for (int turn = FIRST; turn < END; ++turn) {
        const Index index = (turn * THREADS + threadIdx.x) * CHUNK;
        const Index row = index / BK;
        const Index column = index % BK;
        const bf16* place = APART ? from + row * stride + column : from + (row * stride + column);
        const unsigned target = to + tile_offset(row, column);
#if ASYNC
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(place));
#else
        const uint4 four = *reinterpret_cast<const uint4*>(place);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(target), "r"(four.x), "r"(four.y),
                     "r"(four.z), "r"(four.w));
#endif
    }
}

// Copies ROWS x BK elements.
template <int ROWS>
__device__ __forceinline__ void copy_tile(const bf16* from, int stride, unsigned to) {
    copy_turns<0, ROWS * BK / CHUNK / THREADS, false, int>(from, stride, to);
}

// Adds what a warp makes of one step. Lanes read fragments from these rows and columns on, of tiles at
// `a_tile` and `b_tile`.
__device__ __forceinline__ void multiply(Sums& sums, unsigned a_tile, int a_row, int a_column,
                                         unsigned b_tile, int b_row, int b_column) {
    for (int k = 0; k < BK; k += 16) {
        unsigned a[STEPS_M][4];
        unsigned b[STEPS_N][2];
        for (int i = 0; i < STEPS_M; ++i) load_4(a[i], a_tile + tile_offset(a_row + 16 * i, a_column + k));
#if PAIR_B
        for (int j = 0; j < STEPS_N; j += 2) load_4(b[j], b_tile + tile_offset(b_row + 8 * j, b_column + k));
#else
        for (int j = 0; j < STEPS_N; ++j) load_2(b[j], b_tile + tile_offset(b_row + 8 * j, b_column + k));
#endif
        for (int i = 0; i < STEPS_M; ++i) {
            for (int j = 0; j < STEPS_N; ++j) mma(sums[i][j], a[i], b[j]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
    learn_gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(128) unsigned char shared[];

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int warp_row = warp / WARPS_N * WARP_M;
    const int warp_column = warp % WARPS_N * WARP_N;

    const int blocks_n = (N + BN - 1) / BN;
#if GROUP
    // Within GROUP rows of blocks, neighbouring CTAs go down a column.
    const int blocks_m = (M + BM - 1) / BM;
    const int per_group = GROUP * blocks_n;
    const int first = blockIdx.x / per_group * GROUP;
    const int rows = min(blocks_m - first, GROUP);
    const int block_m = first + blockIdx.x % per_group % rows;
    const int block_n = blockIdx.x % per_group / rows;
#else
    const int block_m = blockIdx.x / blocks_n;
    const int block_n = blockIdx.x % blocks_n;
#endif
    A += block_m * BM * K;
    B += block_n * BN * K;

    const unsigned a_tile = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const unsigned b_tile = a_tile + A_BYTES;
    const int a_row = warp_row + lane % 16;
    const int a_column = lane / 16 * 8;
    const int b_row = warp_column + (PAIR_B ? lane / 16 * 8 : 0) + lane % 8;
    const int b_column = lane / 8 % 2 * 8;
    Sums sums = {};

#if STAGES == 1
    for (int start = 0; start < K; start += BK) {
        copy_tile<BM>(A, K, a_tile);
        copy_tile<BN>(B, K, b_tile);
        A += BK;
        B += BK;
#if ASYNC
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 0;");
#endif
        __syncthreads();
        multiply(sums, a_tile, a_row, a_column, b_tile, b_row, b_column);
        __syncthreads();
    }
#else
    // The next tile is on its way while this one is multiplied; the last one has no next.
    auto copy = [&](int step) {
        const int stage = step % STAGES * STAGE_BYTES;
        // As many address instructions as in the build that was measured.
        copy_turns<0, 4, true, unsigned>(A + step * BK, K, a_tile + stage);
        copy_turns<4, BM * BK / CHUNK / THREADS, false, unsigned>(A + step * BK, K, a_tile + stage);
        copy_turns<0, 5, false, int>(B + step * BK, K, b_tile + stage);
        copy_turns<5, BN * BK / CHUNK / THREADS, false, unsigned>(B + step * BK, K, b_tile + stage);
        asm volatile("cp.async.commit_group;");
    };
    const int last = K / BK - 1;
    copy(0);
    for (int step = 0; step < last; ++step) {
        copy(step + 1);
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        const int stage = step % STAGES * STAGE_BYTES;
        multiply(sums, a_tile + stage, a_row, a_column, b_tile + stage, b_row, b_column);
        __syncthreads();
    }
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    const int stage = last % STAGES * STAGE_BYTES;
    multiply(sums, a_tile + stage, a_row, a_column, b_tile + stage, b_row, b_column);
#endif

    for (int i = 0; i < STEPS_M; ++i) {
        for (int j = 0; j < STEPS_N; ++j) {
            const int row = block_m * BM + warp_row + 16 * i + lane / 4;
            const int column = block_n * BN + warp_column + 8 * j + lane % 4 * 2;
            bf16* place = C + row * N + column;
            const float* sum = sums[i][j];
            *reinterpret_cast<__nv_bfloat162*>(place) = __float22bfloat162_rn({sum[0], sum[1]});
            *reinterpret_cast<__nv_bfloat162*>(place + 8 * N) = __float22bfloat162_rn({sum[2], sum[3]});
        }
    }
}
