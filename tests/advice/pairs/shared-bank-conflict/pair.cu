// Rows of 32 words are read by column; then rows of 33.
template <int PITCH> __device__ void load(float* out, int n) {
    __shared__ float t[32 * PITCH];
    for (int k = threadIdx.x; k < 32 * PITCH; k += blockDim.x) t[k] = k;
    __syncthreads();
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s += t[(threadIdx.x & 31) * PITCH + (k & 31)];
    out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
extern "C" __global__ void faulty_load(float* out, int n) { load<32>(out, n); }
extern "C" __global__ void mended_load(float* out, int n) { load<33>(out, n); }

// The same by stores.
template <int PITCH> __device__ void store(float* out, int n) {
    __shared__ float t[32 * PITCH];
    float s = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        reinterpret_cast<volatile float*>(t)[(threadIdx.x & 31) * PITCH + (k & 31)] = s;
        s += 1.0f;
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = t[threadIdx.x];
}
extern "C" __global__ void faulty_store(float* out, int n) { store<32>(out, n); }
extern "C" __global__ void mended_store(float* out, int n) { store<33>(out, n); }

// Matrices of 8 rows of 16 bytes, 128 bytes apart; then 144.
template <int PITCH> __device__ void matrix(unsigned* out, int n) {
    __shared__ __align__(16) char t[32 * PITCH];
    for (int k = threadIdx.x; k < 8 * PITCH; k += blockDim.x) reinterpret_cast<int*>(t)[k] = k;
    __syncthreads();
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(t)) + (threadIdx.x & 31) * PITCH, s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        unsigned a, b, c, d;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address + (k & 7) * 16));
        s += a ^ b ^ c ^ d;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
extern "C" __global__ void faulty_matrix(unsigned* out, int n) { matrix<128>(out, n); }
extern "C" __global__ void mended_matrix(unsigned* out, int n) { matrix<144>(out, n); }

// Counters 32 words apart; then side by side.
template <int PITCH> __device__ void atomic(int* out, int n) {
    __shared__ int t[32 * PITCH];
    for (int k = threadIdx.x; k < 32 * PITCH; k += blockDim.x) t[k] = 0;
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < n; ++k) atomicAdd(&t[(threadIdx.x & 31) * PITCH], k);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = t[threadIdx.x & 31];
}
extern "C" __global__ void faulty_atomic(int* out, int n) { atomic<32>(out, n); }
extern "C" __global__ void mended_atomic(int* out, int n) { atomic<1>(out, n); }

// Asynchronous copies of words into a column; then into rows of 33.
template <int PITCH> __device__ void copy(float* out, int n, const float* in) {
    __shared__ float t[32 * PITCH];
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(t)) + (threadIdx.x & 31) * PITCH * 4;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address + (k & 31) * 4), "l"(in + threadIdx.x));
    }
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = t[threadIdx.x];
}
extern "C" __global__ void faulty_copy(float* out, int n, const float* in) { copy<32>(out, n, in); }
extern "C" __global__ void mended_copy(float* out, int n, const float* in) { copy<33>(out, n, in); }

// Asynchronous copies of 16 bytes into rows of 128; then of 144.
template <int PITCH> __device__ void copy_wide(float* out, int n, const float4* in) {
    __shared__ __align__(16) char t[32 * PITCH];
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(t)) + (threadIdx.x & 31) * PITCH;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(address + (k & 7) * 16), "l"(in + threadIdx.x));
    }
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = reinterpret_cast<float*>(t)[threadIdx.x];
}
extern "C" __global__ void faulty_copy_wide(float* out, int n, const float4* in) { copy_wide<128>(out, n, in); }
extern "C" __global__ void mended_copy_wide(float* out, int n, const float4* in) { copy_wide<144>(out, n, in); }
