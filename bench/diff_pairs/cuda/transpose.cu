// Transposition through shared memory: with padding, without, or with an XOR in its place.
#ifndef PAD
#define PAD 1
#endif
#ifndef SWIZZLE
#define SWIZZLE 0
#endif
constexpr int kTile = 32;
constexpr int kRows = 8;

extern "C" __global__ void transpose(const float *in, float *out, int width, int height) {
  __shared__ float tile[kTile][kTile + PAD];
  int x = blockIdx.x * kTile + threadIdx.x;
  int y = blockIdx.y * kTile + threadIdx.y;
#pragma unroll
  for (int j = 0; j < kTile; j += kRows) {
    const int column = SWIZZLE ? threadIdx.x ^ (threadIdx.y + j) : threadIdx.x;
    tile[threadIdx.y + j][column] = in[(y + j) * width + x];
  }
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
#pragma unroll
  for (int j = 0; j < kTile; j += kRows) {
    const int column = SWIZZLE ? threadIdx.x ^ (threadIdx.y + j) : threadIdx.y + j;
    out[(y + j) * height + x] = tile[threadIdx.x][column];
  }
}
