// Shared memory a little above, and below, what lets one more CTA run on an SM.
extern __shared__ float t[];
__device__ void chase(const float* a, float* b, int n) {
    float s = 0;
    t[threadIdx.x] = threadIdx.x;
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = s * a[k * 128 + threadIdx.x] + t[(threadIdx.x + k) & 127];
    b[blockIdx.x * 128 + threadIdx.x] = s;
}
extern "C" __global__ void faulty_shared(const float* a, float* b, int n) { chase(a, b, n); }
extern "C" __global__ void mended_shared(const float* a, float* b, int n) { chase(a, b, n); }

// Some 66 registers a thread, then some 62: one CTA of 512 threads on an SM, or two. The loop is the same.
template <int N> __device__ void mix(const float* x, float* y, int n) {
    float a[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < N; ++k) asm volatile("ld.global.f32 %0, [%1];" : "=f"(a[k]) : "l"(x + i + k * 4096));
#pragma unroll 1
    for (int t = 0; t < n; ++t) {
        float v = x[i + t * 4096];
#pragma unroll
        for (int k = 0; k < 20; ++k) a[k] = a[k] * v + a[k + 20];
    }
    float s = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) s += a[k];
    y[i] = s;
}
extern "C" __global__ void __launch_bounds__(512) faulty_registers(const float* x, float* y, int n) { mix<58>(x, y, n); }
extern "C" __global__ void __launch_bounds__(512) mended_registers(const float* x, float* y, int n) { mix<54>(x, y, n); }
