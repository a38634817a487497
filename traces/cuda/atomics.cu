// Adding to global memory: by all threads to one word, floating-point and whole numbers, or each to its own.

extern "C" __global__ void add_floats(const float *data, int n, float *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, data[i]);
}

extern "C" __global__ void add_longs(const unsigned long long *data, int n, unsigned long long *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, data[i]);
}

// Threads of a block add to words side by side, the same ones in every block.
extern "C" __global__ void add_columns(const float *data, int n, float *sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&sums[threadIdx.x], data[i]);
}
