// Functions of -rdc=true in one input: each has code of its own. whole_80.cubin is this file as one unit, in which
// the compiler inlines what it may; calls_*.cubin are two units, linked:
//   nvcc -rdc=true -cubin -arch=sm_80 -DFUNCTIONS calls.cu -o f.cubin; the same with -DKERNELS; nvlink -arch=sm_80
// calls_90.txt and .json are nvdisasm's (-c; -json), unnamed_90.sass is cuobjdump's text, which names no callee.
#if !defined(KERNELS)
extern "C" __device__ __noinline__ float leaf(float x, int n) {
    float sum = x;
    for (int i = 0; i < n; i++) sum = sum * x + 1.0f;
    return sum;
}
extern "C" __device__ __noinline__ float middle(float x, int n) { return leaf(x, n) + leaf(x * 2, n / 2); }
extern "C" __device__ __noinline__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
#endif
#if !defined(FUNCTIONS)
#if defined(KERNELS)
extern "C" __device__ float middle(float x, int n);
extern "C" __device__ float leaf(float x, int n);
extern "C" __device__ int fibonacci(int n);
#endif
extern "C" __global__ void calls_one(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = leaf(a[i], n);
}
extern "C" __global__ void calls_two(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1000) b[i] = middle(a[i], n) + leaf(a[i], 3);
}
extern "C" __global__ void recurses(int *out, int n) { out[threadIdx.x] = fibonacci(n); }
#endif
