// Threads exchange registers through shared memory in a loop, though their partners are in the same warp.

constexpr int THREADS = 256;

template <bool in_warps>
__device__ __forceinline__ void wait_for_partners() {
    if (in_warps) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// Each value is read once, by another lane.
template <bool in_warps>
__device__ __forceinline__ void permute(const float* x, float* y, int n) {
    __shared__ float slots[THREADS];
    int warp = threadIdx.x & ~31, lane = threadIdx.x & 31;
    const float* from = x + (blockIdx.x * THREADS + threadIdx.x);
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) {
        float value = from[(i & 7) * THREADS * gridDim.x] + sum;
        slots[threadIdx.x] = value;
        wait_for_partners<in_warps>();
        sum = fmaf(value, slots[warp | ((lane * 5 + i) & 31)], sum);
        wait_for_partners<in_warps>();
    }
    y[blockIdx.x * THREADS + threadIdx.x] = sum;
}

// Each value names the row that half a warp reads.
template <bool in_warps>
__device__ __forceinline__ void gather(const int* rows, const float4* table, float4* y, int n) {
    __shared__ int slots[THREADS];
    int warp = threadIdx.x & ~31, lane = threadIdx.x & 31;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = 0; i < n; ++i) {
        slots[threadIdx.x] = rows[(blockIdx.x * n + i) * THREADS + threadIdx.x];
        wait_for_partners<in_warps>();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float4 part = table[slots[warp | (lane / 16 + 2 * k)] * 16 + lane % 16];
            sum.x += part.x;
            sum.y += part.y;
            sum.z += part.z;
            sum.w += part.w;
        }
        wait_for_partners<in_warps>();
    }
    y[blockIdx.x * THREADS + threadIdx.x] = sum;
}

extern "C" __global__ void faulty(const float* x, float* y, int n) { permute<false>(x, y, n); }
extern "C" __global__ void mended(const float* x, float* y, int n) { permute<true>(x, y, n); }
extern "C" __global__ void faulty_rows(const int* rows, const float4* table, float4* y, int n) {
    gather<false>(rows, table, y, n);
}
extern "C" __global__ void mended_rows(const int* rows, const float4* table, float4* y, int n) {
    gather<true>(rows, table, y, n);
}
