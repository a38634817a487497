// divides_whole_80.cubin is this file as one unit; divides_80.cubin are two, with -DFUNCTIONS and -DKERNELS and
// -rdc=true, linked: both have a subroutine for divisions of 64 bits, which the linker calls by another name.
#if !defined(KERNELS)
extern "C" __device__ __noinline__ long long scale(long long x, long long d) {
    return x / d + 0x3e0 + x % (d + 5);
}
#endif
#if !defined(FUNCTIONS)
#if defined(KERNELS)
extern "C" __device__ long long scale(long long x, long long d);
#endif
extern "C" __global__ void divides(const long long *a, long long *b, long long d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = scale(a[i], d) / (d + 3);
}
#endif
