// Functions that the compiler calls for odd operands of divisions and roots, and words in shared memory.
__device__ float share(float d) {
  const float k = 1.0f / (1.0f + 0.23f * fabsf(d));
  return __expf(-0.5f * d * d) * (k * (0.3f + k * 1.3f));
}

extern "C" __global__ void prices(const float *spot, const float *strike, const float *years, float *calls, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float s = spot[i], x = strike[i], t = years[i], q = sqrtf(t);
  const float d = (__logf(s / x) + 0.065f * t) / (0.3f * q);
  calls[i] = s * share(d) - x * share(d - 0.3f * q);
}

extern "C" __global__ void normalize(const float *in, float *out, int columns) {
  __shared__ float parts[8];
  const float *row = in + (size_t)blockIdx.x * columns;
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c];
  for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int k = 0; k < 8; ++k) sum += parts[k];
  const float scale = 1.0f / (sum / columns);
  for (int c = threadIdx.x; c < columns; c += blockDim.x) out[(size_t)blockIdx.x * columns + c] = row[c] * scale;
}

// A tile's number by shared memory: not even in the CTA's place.
extern "C" __global__ void told(const float *in, float *out) {
  __shared__ int tile;
  if (threadIdx.x == 0) tile = blockIdx.x % 3 == 1 ? 5 : blockIdx.x;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = in[tile * blockDim.x + threadIdx.x];
}
