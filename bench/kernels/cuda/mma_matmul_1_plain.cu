// FP16 GEMM with FP32 sums, C = A * B, all row-major, steps 1.0 and 1.1: mma.sync m16n8k16 on fragments
// read element by element from plain shared memory. 16 x 16 threads: 2 x 4 warps, each with TILES x TILES
// steps of 16 x 8 (TILES: 1 in step 1.0, 2 in step 1.1).
#include <cuda_fp16.h>

// Types and order make as many address instructions as the builds that were measured have.
#if TILES == 1
using Place = int;
#else
using Place = unsigned;
#endif

constexpr int BM = 32 * TILES;
constexpr int BN = 32 * TILES;
constexpr int BK = 16;

// d += a * b for a 16 x 16 fragment of A and a 16 x 8 fragment of B.
__device__ __forceinline__ void mma(float* d, const unsigned* a, const unsigned* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void mma_plain(const half* A, const half* B, float* C, int M, int N, int K) {
    __shared__ half a_tile[BM][BK];
    __shared__ half b_tile[BK][BN];
    const int x = threadIdx.x;
    const int y = threadIdx.y;
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    const unsigned warp = thread / 32;
    const unsigned lane = thread % 32;
    const Place group = lane / 4;  // row of A and C, column of B
    const Place pair = lane % 4;   // two columns of A and C, two rows of B
    const Place block_row = blockIdx.y * BM;
    const Place block_column = blockIdx.x * BN;
    const Place warp_row = warp / 4 * (16 * TILES);
    const Place warp_column = warp % 4 * (8 * TILES);
#if TILES > 1
    A += block_row * K;
    B += block_column;
#endif

    float sums[TILES][TILES][4] = {};
    for (int start = 0; start < K; start += BK) {
        for (int i = 0; i < BM / 16; ++i) {
#if TILES > 1
            a_tile[y + 16 * i][x] = A[(y + 16 * i) * K + start + x];
#else
            a_tile[y + 16 * i][x] = A[(block_row + y + 16 * i) * K + start + x];
#endif
        }
        for (int j = 0; j < BN / 16; ++j) {
#if TILES > 1
            b_tile[y][x + 16 * j] = B[(start + y) * N + x + 16 * j];
#else
            b_tile[y][x + 16 * j] = B[(start + y) * N + block_column + x + 16 * j];
#endif
        }
        __syncthreads();
        half a[TILES][8];
        half b[TILES][4];
#if TILES == 1
        for (int i = 0; i < TILES; ++i) {
            const Place row = warp_row + 16 * i + group;
            a[i][0] = a_tile[row][2 * pair];
            a[i][1] = a_tile[row][2 * pair + 1];
            a[i][2] = a_tile[row + 8][2 * pair];
            a[i][3] = a_tile[row + 8][2 * pair + 1];
            a[i][4] = a_tile[row][2 * pair + 8];
            a[i][5] = a_tile[row][2 * pair + 9];
            a[i][6] = a_tile[row + 8][2 * pair + 8];
            a[i][7] = a_tile[row + 8][2 * pair + 9];
        }
#endif
        for (int j = 0; j < TILES; ++j) {
            const Place column = warp_column + 8 * j + group;
            b[j][0] = b_tile[2 * pair][column];
            b[j][1] = b_tile[2 * pair + 1][column];
            b[j][2] = b_tile[2 * pair + 8][column];
            b[j][3] = b_tile[2 * pair + 9][column];
        }
#if TILES > 1
        for (int i = 0; i < TILES; ++i) {
            const Place row = warp_row + 16 * i + group;
            a[i][0] = a_tile[row][2 * pair];
            a[i][1] = a_tile[row][2 * pair + 1];
            a[i][2] = a_tile[row + 8][2 * pair];
            a[i][3] = a_tile[row + 8][2 * pair + 1];
            a[i][4] = a_tile[row][2 * pair + 8];
            a[i][5] = a_tile[row][2 * pair + 9];
            a[i][6] = a_tile[row + 8][2 * pair + 8];
            a[i][7] = a_tile[row + 8][2 * pair + 9];
        }
#endif
        for (int i = 0; i < TILES; ++i) {
            for (int j = 0; j < TILES; ++j) {
                mma(sums[i][j], reinterpret_cast<unsigned*>(a[i]), reinterpret_cast<unsigned*>(b[j]));
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < TILES; ++i) {
        for (int j = 0; j < TILES; ++j) {
            const Place row = block_row + warp_row + 16 * i + group;
            const Place column = block_column + warp_column + 8 * j + 2 * pair;
            C[row * N + column] = sums[i][j][0];
            C[row * N + column + 1] = sums[i][j][1];
            C[(row + 8) * N + column] = sums[i][j][2];
            C[(row + 8) * N + column + 1] = sums[i][j][3];
        }
    }
}
