// Direct 2-D convolution with tunable block and tile sizes, written anew from its description.
//
// A CTA stages the window of the input that it needs in shared memory; then each thread computes TILE_Y x
// TILE_X outputs that lie a block apart, the filter fully unrolled, weights from constant memory.
//
// BLOCK_X, BLOCK_Y, TILE_X, TILE_Y, FILTER_W, FILTER_H: sizes; PADDING: columns added to a row of the
// window; READ_ONLY: stage through the read-only path; ZERO_OUTSIDE: zeros are staged for what lies outside
// the input, else nothing is, and only outputs that nobody keeps see it.

constexpr int kImage = 4096;  // outputs per row, and rows
constexpr int kInput = kImage + FILTER_W - 1;
constexpr int kInputRows = kImage + FILTER_H - 1;
constexpr int kSpanX = BLOCK_X * TILE_X;
constexpr int kSpanY = BLOCK_Y * TILE_Y;
constexpr int kColumns = kSpanX + FILTER_W - 1;
constexpr int kRows = kSpanY + FILTER_H - 1;
constexpr bool kRagged = kImage % kSpanX != 0 || kImage % kSpanY != 0;

__constant__ float weights[FILTER_H * FILTER_W];

// Macros, since an inlined function would be compiled to other address arithmetic.
#if READ_ONLY
#define FETCH(y, x) __ldg(input + (y) * kInput + (x))
#else
#define FETCH(y, x) input[(y) * kInput + (x)]
#endif

extern "C" __global__ void convolution(float *output, const float *input, const float *) {
  __shared__ float window[kRows][kColumns + PADDING];
  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const int x0 = blockIdx.x * kSpanX;
  const int y0 = blockIdx.y * kSpanY;

#pragma unroll
  for (int row = ty; row < kRows; row += BLOCK_Y) {
#pragma unroll
    for (int column = tx; column < kColumns; column += BLOCK_X) {
      const int y = y0 + row;
      const int x = x0 + column;
#if ZERO_OUTSIDE
      window[row][column] = !kRagged || (y < kInputRows && x < kInput) ? FETCH(y, x) : 0.0f;
#else
      if (!kRagged || (y < kInputRows && x < kInput)) window[row][column] = FETCH(y, x);
#endif
    }
  }
  __syncthreads();

  float sums[TILE_Y][TILE_X] = {};
#pragma unroll
  for (int i = 0; i < FILTER_H; ++i) {
#pragma unroll
    for (int j = 0; j < FILTER_W; ++j) {
#pragma unroll
      for (int v = 0; v < TILE_Y; ++v) {
#pragma unroll
        for (int u = 0; u < TILE_X; ++u)
          sums[v][u] += window[ty + v * BLOCK_Y + i][tx + u * BLOCK_X + j] * weights[i * FILTER_W + j];
      }
    }
  }

#pragma unroll
  for (int v = 0; v < TILE_Y; ++v) {
#pragma unroll
    for (int u = 0; u < TILE_X; ++u) {
      const int y = y0 + ty + v * BLOCK_Y;
      const int x = x0 + tx + u * BLOCK_X;
      if (!kRagged || (y < kImage && x < kImage)) output[y * kImage + x] = sums[v][u];
    }
  }
}
