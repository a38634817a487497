// C = A B with 64 x 64 tiles and 16 results per thread, block 16 x 16; plain loads, or a ring of copies ahead.
#include <cuda_pipeline.h>
#ifndef BOUNDS
#define BOUNDS
#endif
#ifndef EPILOGUE
#define EPILOGUE 0
#endif
#ifndef EXTRA_BARRIER
#define EXTRA_BARRIER 0
#endif
#ifndef STAGES
#define STAGES 3
#endif
constexpr int kTile = 64;
constexpr int kDepth = 16;

extern "C" __global__ void BOUNDS tile_product(const float *__restrict__ a, const float *__restrict__ b,
                                               const float *__restrict__ bias, float *__restrict__ c, int n, int k) {
  __shared__ float tile_a[kDepth][kTile];
  __shared__ float tile_b[kDepth][kTile];
  const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  const float *from_a = a + (blockIdx.y * kTile + thread / 4) * k + thread % 4 * 4;
  const float *from_b = b + (thread / 16) * n + blockIdx.x * kTile + thread % 16 * 4;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    const float4 row_a = *reinterpret_cast<const float4 *>(from_a + k0);
    const float4 row_b = *reinterpret_cast<const float4 *>(from_b + k0 * n);
    tile_a[thread % 4 * 4 + 0][thread / 4] = row_a.x;
    tile_a[thread % 4 * 4 + 1][thread / 4] = row_a.y;
    tile_a[thread % 4 * 4 + 2][thread / 4] = row_a.z;
    tile_a[thread % 4 * 4 + 3][thread / 4] = row_a.w;
    *reinterpret_cast<float4 *>(&tile_b[thread / 16][thread % 16 * 4]) = row_b;
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      float left[4], right[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) left[j] = tile_a[step][ty * 4 + j], right[j] = tile_b[step][tx * 4 + j];
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += left[i] * right[j];
#if EXTRA_BARRIER
      __syncthreads();
#endif
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = blockIdx.x * kTile + tx * 4 + j;
      float value = sum[i][j];
#if EPILOGUE
      value = fmaxf(value + bias[column], 0.0f);
#endif
      c[(blockIdx.y * kTile + ty * 4 + i) * n + column] = value;
    }
}

// Sums of rows of 128 words, copied STAGES - 1 rows ahead; block 128.
extern "C" __global__ void row_sums(const float *__restrict__ in, float *__restrict__ out, int rows) {
  __shared__ float ring[STAGES][128];
  const int t = threadIdx.x;
  const float *from = in + static_cast<size_t>(blockIdx.x) * rows * 128 + t;
#pragma unroll
  for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
    __pipeline_memcpy_async(&ring[ahead][t], from + ahead * 128, 4);
    __pipeline_commit();
  }
  float sum = 0.0f;
#pragma unroll 1
  for (int row = 0; row < rows; ++row) {
    if (row + STAGES - 1 < rows)
      __pipeline_memcpy_async(&ring[(row + STAGES - 1) % STAGES][t], from + (row + STAGES - 1) * 128, 4);
    __pipeline_commit();
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    sum += ring[row % STAGES][t ^ 1];
    __syncthreads();
  }
  out[blockIdx.x * 128 + t] = sum;
}
