// 40 values in 32 registers; then in as many as they need.
__device__ void mix(const float* x, float* y, int n) {
    float a[40];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 40; ++k) a[k] = x[i + k * 4096];
#pragma unroll 1
    for (int t = 0; t < n; ++t) {
#pragma unroll
        for (int k = 0; k < 40; ++k) a[k] = a[k] * a[(k + 17) % 40] + a[(k + 5) % 40];
    }
    float s = 0;
#pragma unroll
    for (int k = 0; k < 40; ++k) s += a[k];
    y[i] = s;
}
extern "C" __global__ void __launch_bounds__(256, 8) faulty(const float* x, float* y, int n) { mix(x, y, n); }
extern "C" __global__ void __launch_bounds__(256) mended(const float* x, float* y, int n) { mix(x, y, n); }
