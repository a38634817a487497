// A CTA's sum and those of all before it: each waits for the one before.
extern "C" __global__ void look_back(const int *in, int *out, volatile int *flags, volatile int *sums) {
  __shared__ int before;
  const int own = in[blockIdx.x * blockDim.x + threadIdx.x];
  if (threadIdx.x == 0) {
    int sum = 0;
    if (blockIdx.x > 0) {
      while (flags[blockIdx.x - 1] == 0) {
      }
      sum = sums[blockIdx.x - 1];
    }
    sums[blockIdx.x] = sum + own;
    __threadfence();
    flags[blockIdx.x] = 1;
    before = sum;
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = before + own;
}

// Pages of 16 rows of 2 KB that a table names, each read by all CTAs along x, some of them in part.
extern "C" __global__ void ragged_pages(const int4 *pool, const int *pages, int4 *out) {
  int4 sum = {};
  for (int row = 0; row < 8 + blockIdx.y % 7; ++row) {
    const int4 found = pool[(static_cast<size_t>(pages[blockIdx.y]) * 16 + row) * 128 + threadIdx.x];
    sum.x += found.x + found.y;
    sum.z += found.z ^ found.w;
  }
  out[(blockIdx.y * gridDim.x + blockIdx.x) * 128 + threadIdx.x] = sum;
}

// A loop whose trips a word tells, and another one behind it.
extern "C" __global__ void two_loops(const float *in, const int *lengths, float *out, int n) {
  const int length = (lengths[blockIdx.x] + 15) / 16;
  float sum = 0;
  const float scale = in[blockIdx.x];
  for (int i = threadIdx.x / 32; i < length; i += blockDim.x / 32) sum += scale * in[i * 32 + threadIdx.x % 32];
  __syncthreads();
  for (int i = 0; i < n; ++i) out[i * blockDim.x + threadIdx.x] = sum * i;
}
