// Threads hand each other pointers through shared memory, as Triton does where it lays a tile of them out anew.
extern "C" {
__global__ void handed(const float *in, float *out, int n, int pitch) {
  __shared__ const float *places[128];
  __shared__ int limit;
  const int t = threadIdx.x;
  if (t == 0) limit = n;
  places[127 - t] = in + (long long)(int)(blockIdx.y * pitch) + t;
  __syncthreads();
  const float *place = places[t ^ 5];
  float sum = 0;
  if (limit > 4) {
#pragma unroll 1
    for (int i = 0; i <= blockIdx.x; ++i) sum += place[128 * i];
  }
  // rounded, and to the same everywhere
  const int at = (blockIdx.y * gridDim.x + blockIdx.x) * 128 + t;
  out[at + 3 * (at >> 24)] = sum;
}

// One byte of each pointer is put there anew, so that it no longer moves evenly.
__global__ void mixed(const float *in, float *out, int n, int pitch) {
  __shared__ const float *places[128];
  const int t = threadIdx.x;
  places[127 - t] = in + (long long)(int)(blockIdx.y * pitch) + t;
  __syncthreads();
  reinterpret_cast<volatile char *>(places)[8 * t] = 64;
  __syncthreads();
  out[(blockIdx.y * gridDim.x + blockIdx.x) * 128 + t] = *places[t ^ 5];
}

// Two rings of places come round together every twelve iterations; in each of these some CTA leaves the loop.
__global__ void stairs(const float *in, float *out, int n, int pitch) {
  int at = 0, slot = 0;
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < n + blockIdx.x; ++i) {
    sum += in[at * pitch + threadIdx.x] * in[slot * pitch + 7 * i];
    at = at == 2 ? 0 : at + 1;
    slot = slot == 3 ? 0 : slot + 1;
  }
  out[blockIdx.x * 128 + threadIdx.x] = sum;
}
}
