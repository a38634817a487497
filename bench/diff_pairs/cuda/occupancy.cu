// A row, then a chain of multiply-adds that needs it, then the next row: only more warps hide the latencies. Block 128.
#ifndef SHARED_WORDS
#define SHARED_WORDS 4096
#endif

extern "C" __global__ void relax(const float *in, float *out, int rows, int width) {
  __shared__ float scratch[SHARED_WORDS];
  const int t = threadIdx.x;
  const int i = blockIdx.x * blockDim.x + t;
  scratch[t] = static_cast<float>(t);
  __syncthreads();
  float state = scratch[t ^ 1];
#pragma unroll 1
  for (int row = 0; row < rows; ++row) {
    const float x = in[row * width + i];
#pragma unroll
    for (int step = 0; step < 32; ++step) state = state * x + 0.5f;
  }
  out[i] = state + scratch[(t * 7) % SHARED_WORDS];
}
