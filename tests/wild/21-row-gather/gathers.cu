// Which row a group of lanes reads comes from memory, and takes a way to the lanes: each group reads one whole
// row, whichever it is. nvcc -cubin -arch=sm_80 gathers.cu, then cuobjdump -sass.
#include <cuda_pipeline.h>

using rows_t = const int *__restrict__;
using table_t = const float4 *__restrict__;

extern "C" __global__ void own_slot(rows_t pick, table_t table, float4 *out) {
  __shared__ int rows[256];
  int t = blockIdx.x * blockDim.x + threadIdx.x, u = threadIdx.x;
  rows[u % 16 * 16 + u / 16] = pick[t / 16];
  __syncthreads();
  out[t] = table[rows[u % 16 * 16 + u / 16] * 16 + t % 16];
}

extern "C" __global__ void other_slot(rows_t pick, table_t table, float4 *out) {
  __shared__ int rows[256];
  int t = blockIdx.x * blockDim.x + threadIdx.x, u = threadIdx.x;
  rows[u] = pick[blockIdx.x * 16 + u % 16];
  __syncthreads();
  out[t] = table[rows[u % 16 * 16 + u / 16] * 16 + u % 16];
}

extern "C" __global__ void two_slots(rows_t pick, table_t table, float4 *out) {
  __shared__ int rows[256], later[256];
  int t = blockIdx.x * blockDim.x + threadIdx.x, u = threadIdx.x;
  rows[u % 16 * 16 + u / 16] = pick[t / 16];
  __syncthreads();
  later[u] = rows[u % 16 * 16 + u / 16];
  __syncthreads();
  out[t] = table[(size_t)later[u ^ 16] * 16 + t % 16];
}

extern "C" __global__ void copied(rows_t pick, table_t table, float4 *out) {
  __shared__ __align__(16) int rows[256];
  int t = blockIdx.x * blockDim.x + threadIdx.x, u = threadIdx.x;
  __pipeline_memcpy_async(&rows[u], &pick[t / 16], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[t] = table[(size_t)rows[u] * 16 + t % 16];
}

extern "C" __global__ void shuffled(rows_t pick, table_t table, float4 *out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
  int row = __shfl_sync(~0u, pick[t / 16 * 16 + lane % 16], lane / 16);
  out[t] = table[row * 16 + t % 16];
}

extern "C" __global__ void reduced(rows_t pick, table_t table, float4 *out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  out[t] = table[(size_t)__reduce_max_sync(~0u, pick[t]) * 32 + (threadIdx.x & 31)];
}

extern "C" __global__ void on_the_stack(rows_t pick, table_t table, float4 *out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  int rows[8];
  for (int i = 0; i < 8; i++) rows[i] = pick[t / 16 * 8 + i];
  out[t] = table[(size_t)rows[n & 7] * 16 + t % 16];
}

extern "C" __global__ void one_bit(const unsigned char *__restrict__ pick, table_t table, float4 *out) {
  __shared__ unsigned char rows[256];
  int t = blockIdx.x * blockDim.x + threadIdx.x, u = threadIdx.x;
  rows[u] = pick[t / 16] & 1;
  __syncthreads();
  out[t] = table[(size_t)rows[u] * 16 + t % 16];
}

extern "C" __global__ void row_of_cta(rows_t pick, table_t table, float4 *out) {
  __shared__ int rows[256];
  int t = blockIdx.x * blockDim.x + threadIdx.x, u = threadIdx.x;
  rows[u] = pick[blockIdx.x];
  __syncthreads();
  out[t] = table[(size_t)rows[u ^ 33] * 256 + u];
}

// Here each lane does read a row of its own.
extern "C" __global__ void scattered(rows_t pick, table_t table, float4 *out) {
  __shared__ int rows[256];
  int t = blockIdx.x * blockDim.x + threadIdx.x, u = threadIdx.x;
  rows[u] = pick[t];
  __syncthreads();
  out[t] = table[(size_t)rows[u ^ 1] * 16];
}
