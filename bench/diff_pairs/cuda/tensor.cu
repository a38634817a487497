// A 64 x 64 tile by tensor cores, four warps; rows of shared memory with or without padding. Block 128.
#include <cuda_fp16.h>
#include <mma.h>
#ifndef PAD
#define PAD 8
#endif
#ifndef DEPTH
#define DEPTH 64
#endif
using namespace nvcuda;

extern "C" __global__ void tensor_tile(const __half *a, const __half *b, float *c, int n, int k) {
  __shared__ __align__(16) __half tile_a[64][DEPTH + PAD];
  __shared__ __align__(16) __half tile_b[64][DEPTH + PAD];
  const int t = threadIdx.x, warp = t / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4];
  for (int j = 0; j < 4; ++j) wmma::fill_fragment(sums[j], 0.0f);
  for (int k0 = 0; k0 < k; k0 += DEPTH) {
    for (int piece = t; piece < 64 * DEPTH / 8; piece += 128) {
      const int row = piece / (DEPTH / 8), column = piece % (DEPTH / 8) * 8;
      *reinterpret_cast<int4 *>(&tile_a[row][column]) =
          *reinterpret_cast<const int4 *>(a + (blockIdx.y * 64 + row) * k + k0 + column);
      *reinterpret_cast<int4 *>(&tile_b[row][column]) =
          *reinterpret_cast<const int4 *>(b + (blockIdx.x * 64 + row) * k + k0 + column);
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < DEPTH; step += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
      wmma::load_matrix_sync(left, &tile_a[warp * 16][step], DEPTH + PAD);
      for (int j = 0; j < 4; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> right;
        wmma::load_matrix_sync(right, &tile_b[j * 16][step], DEPTH + PAD);
        wmma::mma_sync(sums[j], left, right, sums[j]);
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; ++j)
    wmma::store_matrix_sync(c + (blockIdx.y * 64 + warp * 16) * n + blockIdx.x * 64 + j * 16, sums[j], n,
                            wmma::mem_row_major);
}
