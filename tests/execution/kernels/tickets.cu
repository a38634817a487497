// Reductions in one launch: the CTA that gets the last number of a counter adds up what all have left.
__device__ unsigned counter;

__device__ void add_up(const volatile float *parts, float *out) {
  float sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += parts[i];
  out[threadIdx.x] = sum;
}

extern "C" __global__ void last_block(const float *in, volatile float *parts, float *out) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = in[blockIdx.x];
    __threadfence();
    is_last = atomicInc(&counter, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last) add_up(parts, out);
}

extern "C" __global__ void last_warp(const float *in, volatile float *parts, float *out) {
  unsigned ticket = 0;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = in[blockIdx.x];
    __threadfence();
    ticket = atomicAdd(&counter, 1);
  }
  ticket = __shfl_sync(~0u, ticket, 0);
  if (ticket == gridDim.x - 1) add_up(parts, out);
}

extern "C" __global__ void first_visit(unsigned *visits, float *out) {
  if (atomicAdd(visits + blockIdx.x, 1) == 0) out[threadIdx.x] = 1;
}
