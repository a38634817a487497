// Tiles go through registers into shared memory, and every warp waits for them; then cp.async brings them, one tile
// ahead, into a second buffer.
__device__ float use(const float* t) {
    float s = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) s += t[(threadIdx.x + 17 * j) & 255];
    return s;
}
extern "C" __global__ void faulty(const float* x, float* y, int n) {
    __shared__ float t[2][256];
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        t[k & 1][threadIdx.x] = x[(blockIdx.x * 64 + k) * 256 + threadIdx.x];
        __syncthreads();
        s += use(t[k & 1]);
    }
    y[blockIdx.x * 256 + threadIdx.x] = s;
}
extern "C" __global__ void mended(const float* x, float* y, int n) {
    __shared__ float t[2][256];
    float s = 0;
#define COPY(k) { \
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&t[(k) & 1][threadIdx.x])); \
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + (blockIdx.x * 64 + (k)) * 256 + threadIdx.x)); \
    asm volatile("cp.async.commit_group;"); }
    COPY(0)
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        COPY(k + 1)
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        s += use(t[k & 1]);
        __syncthreads();
    }
    y[blockIdx.x * 256 + threadIdx.x] = s;
}
