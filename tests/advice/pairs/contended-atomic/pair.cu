// All threads add to one word; then each to its own.
extern "C" __global__ void faulty_integer(const int* x, int* c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicMax(c, x[i]);
}
extern "C" __global__ void mended_integer(const int* x, int* c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicMax(c + i, x[i]);
}
// 64 words of floating-point numbers; then one for each thread.
extern "C" __global__ void faulty_float(const float* x, float* c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(c + (i & 63), x[i]);
}
extern "C" __global__ void mended_float(const float* x, float* c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(c + i, x[i]);
}
