// BF16 GEMM C = alpha * A * B without tensor cores, step 1: row-major matrices, tiles of BM x BN x BK in shared
// memory, A's transposed; each warp computes WM x WN of a tile, each thread TM x TN in each of WN_PARTS parts.
#include <cuda_bf16.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;

constexpr int PART_N = WN / WN_PARTS;
constexpr int VECTOR = 4;  // elements that a thread moves at once: 8 bytes
constexpr int LANES_N = PART_N / TN;

static_assert(WM * PART_N == 32 * TM * TN, "a warp's part is one tile of each lane");

struct alignas(8) Vector {
    bf16 element[VECTOR];
};

__device__ __forceinline__ void load_tiles(const bf16* A, const bf16* B, int K, int N, bf16* a, bf16* b) {
    constexpr int A_ROWS = THREADS * VECTOR / BK;
    constexpr int B_ROWS = THREADS * VECTOR / BN;
    const int a_row = threadIdx.x / (BK / VECTOR);
    const int a_column = threadIdx.x % (BK / VECTOR) * VECTOR;
    const int b_row = threadIdx.x / (BN / VECTOR);
    const int b_column = threadIdx.x % (BN / VECTOR) * VECTOR;
    for (int row = 0; row < BM; row += A_ROWS) {
        const Vector found = *reinterpret_cast<const Vector*>(&A[(row + a_row) * K + a_column]);
        for (int i = 0; i < VECTOR; ++i) a[(a_column + i) * BM + row + a_row] = found.element[i];
    }
    for (int row = 0; row < BK; row += B_ROWS) {
        *reinterpret_cast<Vector*>(&b[(row + b_row) * BN + b_column]) =
            *reinterpret_cast<const Vector*>(&B[(row + b_row) * N + b_column]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ffma_gemm(int M, int N, int K, bf16* C, const bf16* A, const bf16* B) {
    __shared__ bf16 a[BK * BM];
    __shared__ bf16 b[BK * BN];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int warp_row = warp / (BN / WN) * WM;
    const int warp_column = warp % (BN / WN) * WN;
    const int row = warp_row + lane / LANES_N * TM;
    const int column = warp_column + lane % LANES_N * TN;
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;

    float sums[TM][WN_PARTS * TN] = {};
    float of_a[TM];
    float of_b[WN_PARTS * TN];
    for (int k = 0; k < K; k += BK) {
        load_tiles(A, B, K, N, a, b);
        __syncthreads();
        for (int inner = 0; inner < BK; ++inner) {
            for (int i = 0; i < TM; ++i) of_a[i] = __bfloat162float(a[inner * BM + row + i]);
            for (int part = 0; part < WN_PARTS; ++part) {
                for (int j = 0; j < TN; ++j) {
                    of_b[part * TN + j] = __bfloat162float(b[inner * BN + column + part * PART_N + j]);
                }
            }
            for (int i = 0; i < TM; ++i) {
                for (int j = 0; j < WN_PARTS * TN; ++j) sums[i][j] += of_a[i] * of_b[j];
            }
        }
        A += BK;
        B += BK * N;
        __syncthreads();
    }
    for (int part = 0; part < WN_PARTS; ++part) {
        for (int i = 0; i < TM; ++i) {
            for (int j = 0; j < TN; j += VECTOR) {
                Vector out;
                for (int n = 0; n < VECTOR; ++n) out.element[n] = __float2bfloat16(sums[i][part * TN + j + n]);
                *reinterpret_cast<Vector*>(&C[(row + i) * N + column + part * PART_N + j]) = out;
            }
        }
    }
}
