// A ring of eight values: indexed by an argument, then by constants.
__device__ void ring(float* y, int n, int first) {
    float h[8], s = threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; ++k) h[k] = k + s;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
#pragma unroll
        for (int j = 0; j < 8; ++j) { s = s * h[(j + first) & 7] + 1.0f; h[(j + first) & 7] = s; }
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
extern "C" __global__ void faulty(float* y, int n, int first) { ring(y, n, first); }
extern "C" __global__ void mended(float* y, int n, int first) { ring(y, n, 0); }
