// Every eighth CTA has eight times the work of the others; then all have as much.
__device__ void work(float* y, int n) {
    float a = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k) a = a * a + 1.f;
    y[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
extern "C" __global__ void faulty(float* y, int n) { work(y, blockIdx.x % 8 == 7 ? n : n / 8); }
extern "C" __global__ void mended(float* y, int n) { work(y, (n + 7 * (n / 8)) / 8); }

// The rows of a triangle, one for each CTA; then a long and a short row for each.
extern "C" __global__ void faulty_triangle(float* y, int n) { work(y, (blockIdx.x + 1) * n); }
extern "C" __global__ void mended_triangle(float* y, int n) { work(y, (gridDim.x + 1) * n / 2); }
