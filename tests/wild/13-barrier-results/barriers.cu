// Reductions at CTA barriers (BAR.RED, B2R.RESULT). Each kernel stores out[...] in as many lanes as the result says.
#define KERNEL extern "C" __global__ void
__device__ unsigned count(unsigned id, unsigned n, bool p) {
  unsigned c;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; barrier.cta.red.popc.u32 %0, %2, %3, p; }"
               : "=r"(c) : "r"((unsigned)p), "r"(id), "r"(n));
  return c;
}
KERNEL counts(unsigned* out) { unsigned t = threadIdx.x; if (t < __syncthreads_count(t % 4 == 1)) out[t] = 1; }
KERNEL any(unsigned* out, unsigned n) { unsigned t = threadIdx.x; if (__syncthreads_or(t == n)) out[t] = 1; }
KERNEL all(unsigned* out, unsigned n) { unsigned t = threadIdx.x; if (__syncthreads_and(t < n)) out[t] = 1; }
KERNEL unrolled(unsigned* out) {
  unsigned t = threadIdx.x;
  for (int k = 0; k < 4; ++k) if (t < __syncthreads_count(t % (k + 2) == 0)) out[t + k] = 1;
}
KERNEL looped(unsigned* out, unsigned n) {  // the same reduction in each iteration
  unsigned t = threadIdx.x;
#pragma unroll 1
  for (unsigned k = 0; k < n; ++k) if (t < __syncthreads_count(t % 4 == 1)) out[t + k] = 1;
}
KERNEL shrinking(unsigned* out, unsigned n) {  // another one in each, at other times in each warp
  unsigned t = threadIdx.x;
#pragma unroll 1
  for (unsigned k = 0; k < n; ++k) if (t < __syncthreads_count(t + k < n)) out[t + k] = 1;
}
KERNEL through_shared(unsigned* out, unsigned n) {
  __shared__ unsigned s[1024];
  unsigned t = threadIdx.x; s[t] = t * 37u % 11; __syncthreads();
  unsigned v = s[t ^ 1];
  int c = __syncthreads_count(v & 1);
  if (v % n) out[t + 4096] = c;
  if (t < c) out[t] = 1;
}
KERNEL early_exit(unsigned* out, unsigned n) {  // threads that have exited are not counted, nor waited for
  unsigned t = threadIdx.x;
  if (t >= n) return;
  if (t < __syncthreads_count(t % 3 != 0)) out[t] = 1;
}
KERNEL by_number(unsigned* out) {  // each pair of warps at a barrier of its own, several at a time
  unsigned t = threadIdx.x;
  if (t % 64 < count(1 + t / 64, 64, t % 64 < 5 * (t / 64) + 3)) out[t] = 1;
}
KERNEL packed(unsigned* out, unsigned id, unsigned n) {  // number and threads in one register
  unsigned t = threadIdx.x;
  if (t < count(id, n, t % 5 == 0)) out[t] = 1;
}
KERNEL of_grid(unsigned* out, unsigned n) {  // a large grid: the last CTAs have fewer elements
  unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t < __syncthreads_count(i < n)) out[i] = 1;
}
KERNEL of_data(unsigned* out, const unsigned* in) {  // what is reduced is not known
  unsigned t = threadIdx.x;
  if (t < __syncthreads_count(in[t] != 0)) out[t] = 1;
}
