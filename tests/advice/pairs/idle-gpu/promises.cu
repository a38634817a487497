// Loops over the whole grid that a small grid runs; the mended launch is a grid that fills the GPU.

// A sum.
__device__ __forceinline__ void sum(const float* x, float* out, int n) {
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
    for (int m = 16; m > 0; m >>= 1) s += __shfl_xor_sync(~0u, s, m);
    if (threadIdx.x % 32 == 0) atomicAdd(out, s);
}
extern "C" __global__ void faulty_sum(const float* x, float* out, int n) { sum(x, out, n); }
extern "C" __global__ void mended_sum(const float* x, float* out, int n) { sum(x, out, n); }
// An activation.
__device__ __forceinline__ void activate(const float4* x, float4* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i];
        v.x *= 1.f / (1.f + __expf(-v.x)); v.y *= 1.f / (1.f + __expf(-v.y));
        v.z *= 1.f / (1.f + __expf(-v.z)); v.w *= 1.f / (1.f + __expf(-v.w));
        y[i] = v;
    }
}
extern "C" __global__ void faulty_activate(const float4* x, float4* y, int n) { activate(x, y, n); }
extern "C" __global__ void mended_activate(const float4* x, float4* y, int n) { activate(x, y, n); }
