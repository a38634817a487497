// nvcc -arch=sm_80 (sm_90) -cubin loops.cu && cuobjdump -sass loops.cubin (runs of blanks dropped)
// One warp alone waits for each product, and for each multiply-add, before it starts the next one. The loop over
// `m` is not entered where m is 0.
extern "C" __global__ void mma_chain(float* o, int n) {
  unsigned a = threadIdx.x;
  float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
#pragma unroll 8
  for (int k = 0; k < n; ++k)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%4,%4,%4},{%4,%4},{%0,%1,%2,%3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a));
  o[threadIdx.x] = d0 + d1 + d2 + d3;
}
extern "C" __global__ void chain(float* x, int n, int m) {
  float a = x[threadIdx.x];
#pragma unroll 4
  for (int k = 0; k < n; ++k) a = a * a + 1.f;
#pragma unroll 1
  for (int k = 0; k < m; ++k) x[k * 32 + threadIdx.x] = a;
  x[threadIdx.x] = a;
}
// Warp 0 of 8 runs the loop.
extern "C" __global__ void one_warp(float* x, int n) {
  float a = x[threadIdx.x];
  if (threadIdx.x < 32) {
#pragma unroll 1
    for (int k = 0; k < n; ++k) { a = a * a + 1.f; a = a * a + 2.f; a = a * a + 3.f; a = a * a + 4.f; }
  }
  x[threadIdx.x] = a;
}
