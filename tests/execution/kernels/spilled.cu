// Places of results that wait in the frame of spilled registers while others are read.
extern "C" __global__ void spilled(const float *in, float *out, int width) {
  int places[24];
  float sums[24];
#pragma unroll
  for (int i = 0; i < 24; ++i) {
    places[i] = (blockIdx.y * 24 + i) * width + blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] = in[places[i]];
  }
#pragma unroll 1
  for (int step = 0; step < 5; ++step) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 24; ++i) sums[i] = sums[i] * sums[(i + 5) % 24] + static_cast<float>(places[i]);
  }
#pragma unroll
  for (int i = 0; i < 24; ++i) out[places[i] * 2] = sums[i];
}
