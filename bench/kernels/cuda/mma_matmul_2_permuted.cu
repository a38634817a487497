// FP16 GEMM with FP32 sums, C = A * B, all row-major, steps 2.0 and 2.1: fragments read by ldmatrix from
// permuted shared memory. 16 x 16 threads: 2 x 4 warps, each with 2 x 2 steps of 16 x 8, 32 deep.
// A row of shared memory is 128 bytes, eight chunks of 16; chunk c of row r lies at place c ^ (r % 8), so the
// eight rows that ldmatrix reads at once touch all banks. Two rows of the A tile (32 deep) fill one such row.
// KEEP_A: 0 (step 2.0) reads both fragments for each mma; 1 (step 2.1) keeps those of A in registers.
#include <cuda_fp16.h>

#if KEEP_A
using Thread = int;
using Lane = unsigned;
#else
using Thread = unsigned;
using Lane = int;
#endif

constexpr int BM = 64;
constexpr int BN = 64;
constexpr int BK = 32;

__device__ __forceinline__ void mma(float* d, const unsigned* a, const unsigned* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices: a 16 x 16 fragment of A.
__device__ __forceinline__ void load_a(unsigned* a, const uint4* place) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(place));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address));
}

// Two 8 x 8 matrices, transposed: a 16 x 8 fragment of B.
__device__ __forceinline__ void load_b(unsigned* b, const uint4* place) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(place));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(address));
}

extern "C" __global__ void mma_permuted(const half* A, const half* B, float* C, int M, int N, int K) {
    __shared__ uint4 a_tile[BM / 2][8];
    __shared__ uint4 b_tile[BK][8];
    const Thread thread = threadIdx.y * blockDim.x + threadIdx.x;
    const Lane warp = thread / 32;
    const Lane lane = thread % 32;
    const Thread block_row = blockIdx.y * BM;
    const Thread block_column = blockIdx.x * BN;
    const Lane warp_row = warp / 4 * 32;
    const Lane warp_column = warp % 4 * 16;

    // What this thread loads: a chunk of each tile. A: 4 chunks a row, B: 8.
#if KEEP_A
    A += block_row * K;
    B += block_column;
#else
    const half* a_global = A + (block_row + thread / 4) * K + thread % 4 * 8;
    const half* b_global = B + thread / 8 * N + block_column + thread % 8 * 8;
#endif
    uint4* a_store = &a_tile[thread / 8][(thread % 8) ^ (thread / 8 % 8)];
    uint4* b_store = &b_tile[thread / 8][(thread % 8) ^ (thread / 8 % 8)];

    float sums[2][2][4] = {};
#if !KEEP_A
#pragma unroll 2
#endif
    for (int start = 0; start < K; start += BK) {
#if KEEP_A
        *a_store = *reinterpret_cast<const uint4*>(&A[thread / 4 * K + thread % 4 * 8]);
        *b_store = *reinterpret_cast<const uint4*>(&B[thread / 8 * N + thread % 8 * 8]);
        A += BK;
        B += BK * N;
#else
        *a_store = *reinterpret_cast<const uint4*>(a_global);
        *b_store = *reinterpret_cast<const uint4*>(b_global);
        a_global += BK;
        b_global += BK * N;
#endif
        __syncthreads();
        for (int k = 0; k < 2; ++k) {
#if KEEP_A
            unsigned a[2][4];
            for (int i = 0; i < 2; ++i) {
                const int row = warp_row + 16 * i + lane % 16;
                const int chunk = row % 2 * 4 + 2 * k + lane / 16;
                load_a(a[i], &a_tile[row / 2][chunk ^ (row / 2 % 8)]);
            }
#endif
            for (int i = 0; i < 2; ++i) {
                for (int j = 0; j < 2; ++j) {
#if !KEEP_A
                    unsigned a[2][4];
                    const int row = warp_row + 16 * i + lane % 16;
                    const int chunk = row % 2 * 4 + 2 * k + lane / 16;
                    load_a(a[i], &a_tile[row / 2][chunk ^ (row / 2 % 8)]);
#endif
                    unsigned b[2];
                    const int depth = 16 * k + lane % 16;
                    const int column = warp_column / 8 + j;
                    load_b(b, &b_tile[depth][column ^ (depth % 8)]);
                    mma(sums[i][j], a[i], b);
                }
            }
        }
        __syncthreads();
    }
    const int group = lane / 4;
    const int pair = lane % 4;
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            const int row = block_row + warp_row + 16 * i + group;
            const int column = block_column + warp_column + 8 * j + 2 * pair;
            float* place = C + row * N + column;
            place[0] = sums[i][j][0];
            place[1] = sums[i][j][1];
            place[8 * N] = sums[i][j][2];
            place[8 * N + 1] = sums[i][j][3];
        }
    }
}
