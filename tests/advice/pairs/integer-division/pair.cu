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
