// A scale that the store may change is loaded again in each iteration; __restrict__ says that it does not.
extern "C" __global__ void faulty(const float* scale, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, m = gridDim.x * blockDim.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k) y[k * m + i] = scale[i & 31] * k;
}
extern "C" __global__ void mended(const float* __restrict__ scale, float* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, m = gridDim.x * blockDim.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k) y[k * m + i] = scale[i & 31] * k;
}
