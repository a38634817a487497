// Divisions by an argument; then by a constant.
__device__ __forceinline__ void work(unsigned* y, int n, unsigned d) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, s = i;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = (s + k * 977u) / d + (s ^ k);
    y[i] = s;
}
extern "C" __global__ void faulty(unsigned* y, int n, unsigned d) { work(y, n, d); }
extern "C" __global__ void mended(unsigned* y, int n, unsigned d) { work(y, n, 10); }
// Signed remainders, with a divisor that changes; then the high word of a product.
extern "C" __global__ void faulty_signed(int* y, int n, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, s = i;
#pragma unroll 1
    for (int k = 0; k < n; ++k) { s = (s + k * 977) % (d + k) + (s ^ k); }
    y[i] = s;
}
extern "C" __global__ void mended_signed(int* y, int n, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, s = i;
#pragma unroll 1
    for (int k = 0; k < n; ++k) { s = __mulhi(s + k * 977, d + k) + (s ^ k); }
    y[i] = s;
}
// Four quotients by one divisor in each iteration; then by a constant.
__device__ __forceinline__ void work_unrolled(int* y, int n, int d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, s = i;
#pragma unroll 4
    for (int k = 0; k < n; ++k) s = (s + k) / d + (s << 9);
    y[i] = s;
}
extern "C" __global__ void faulty_unrolled(int* y, int n, int d) { work_unrolled(y, n, d); }
extern "C" __global__ void mended_unrolled(int* y, int n, int d) { work_unrolled(y, n, 12); }
// 64 bits, a subroutine; then the high word of a product.
extern "C" __global__ void faulty_wide(unsigned long long* y, int n, unsigned long long d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long s = i + d;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = (s + k) / d + (s << 9 | d);
    y[i] = s;
}
extern "C" __global__ void mended_wide(unsigned long long* y, int n, unsigned long long d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long s = i + d;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = __umul64hi(s + k, d) + (s << 9 | d);
    y[i] = s;
}
// 16 bits, a subroutine; then a shift.
extern "C" __global__ void faulty_short(unsigned* y, int n, unsigned short d) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, s = i;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = static_cast<unsigned short>(s + k) / d + s * 3;
    y[i] = s;
}
extern "C" __global__ void mended_short(unsigned* y, int n, unsigned short d) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, s = i;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = (static_cast<unsigned short>(s + k) * d >> 16) + s * 3;
    y[i] = s;
}
