// The same work in a little more than a wave of CTAs, and in just one.
__device__ void work(float* y, int n) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
#pragma unroll 4
    for (int k = 0; k < n; ++k) { a = a * a + 1.f; b = b * b + 1.f; c = c * c + 1.f; d = d * d + 1.f; }
    y[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
extern "C" __global__ void faulty(float* y, int n) { work(y, n); }
extern "C" __global__ void mended(float* y, int n) { work(y, n); }
