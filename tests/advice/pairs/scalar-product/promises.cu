// Products of matrices by scalar multiply-adds, without bank conflicts; then by tensor cores.
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;

// FP16 operands, 64 x 64 tiles, 4 x 4 elements a thread.
extern "C" __global__ void faulty_half(const __half* a, const __half* b, float* c, int n) {
    __shared__ __half s[16][64 + 2], t[16][64];
    int x = threadIdx.x, y = threadIdx.y, id = y * 16 + x, row = blockIdx.y * 64, col = blockIdx.x * 64;
    float sum[4][4] = {};
#pragma unroll 1
    for (int k = 0; k < n; k += 16) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            s[id % 16][id / 16 + 16 * i] = a[(row + id / 16 + 16 * i) * n + k + id % 16];
            t[id / 64 + 4 * i][id % 64] = b[(k + id / 64 + 4 * i) * n + col + id % 64];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            float p[4], q[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) { p[i] = __half2float(s[j][y + 16 * i]); q[i] = __half2float(t[j][x + 16 * i]); }
#pragma unroll
            for (int u = 0; u < 4; ++u)
#pragma unroll
                for (int v = 0; v < 4; ++v) sum[u][v] += p[u] * q[v];
        }
        __syncthreads();
    }
#pragma unroll
    for (int u = 0; u < 4; ++u)
#pragma unroll
        for (int v = 0; v < 4; ++v) c[(row + y + 16 * u) * n + col + x + 16 * v] = sum[u][v];
}
extern "C" __global__ void mended_half(const __half* a, const __half* b, float* c, int n) {
    __shared__ __half s[64][16 + 8], t[16][64 + 8];
    int x = threadIdx.x, y = threadIdx.y, id = y * 16 + x, row = blockIdx.y * 64, col = blockIdx.x * 64, warp = id / 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2];
    wmma::fill_fragment(sum[0], 0.f);
    wmma::fill_fragment(sum[1], 0.f);
#pragma unroll 1
    for (int k = 0; k < n; k += 16) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            s[id / 16 + 16 * i][id % 16] = a[(row + id / 16 + 16 * i) * n + k + id % 16];
            t[id / 64 + 4 * i][id % 64] = b[(k + id / 64 + 4 * i) * n + col + id % 64];
        }
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> p;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> q;
        wmma::load_matrix_sync(p, &s[warp / 2 * 16][0], 24);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            wmma::load_matrix_sync(q, &t[0][(warp % 2 * 2 + i) * 16], 72);
            wmma::mma_sync(sum[i], p, q, sum[i]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
        wmma::store_matrix_sync(&c[(row + warp / 2 * 16) * n + col + (warp % 2 * 2 + i) * 16], sum[i], n, wmma::mem_row_major);
}
// FP32 operands, which TF32 may do for, 32 x 32 tiles, eight elements of a column a thread.
extern "C" __global__ void faulty_float(const float* a, const float* b, float* c, int n) {
    __shared__ float s[32][32], t[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32, col = blockIdx.x * 32;
    float sum[8] = {};
#pragma unroll 1
    for (int k = 0; k < n; k += 32) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            s[y + 4 * i][x] = a[(row + y + 4 * i) * n + k + x];
            t[y + 4 * i][x] = b[(k + y + 4 * i) * n + col + x];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 32; ++j)
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[i] += s[y + 4 * i][j] * t[j][x];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) c[(row + y + 4 * i) * n + col + x] = sum[i];
}
extern "C" __global__ void mended_float(const float* a, const float* b, float* c, int n) {
    __shared__ float s[32][32 + 4], t[32][32 + 8];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32, col = blockIdx.x * 32, warp = y;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::fill_fragment(sum, 0.f);
#pragma unroll 1
    for (int k = 0; k < n; k += 32) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            s[y + 4 * i][x] = a[(row + y + 4 * i) * n + k + x];
            t[y + 4 * i][x] = b[(k + y + 4 * i) * n + col + x];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 32; j += 8) {
            wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> p;
            wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> q;
            wmma::load_matrix_sync(p, &s[warp / 2 * 16][j], 36);
            wmma::load_matrix_sync(q, &t[j][warp % 2 * 16], 40);
            wmma::mma_sync(sum, p, q, sum);
        }
        __syncthreads();
    }
    wmma::store_matrix_sync(&c[(row + warp / 2 * 16) * n + col + warp % 2 * 16], sum, n, wmma::mem_row_major);
}
