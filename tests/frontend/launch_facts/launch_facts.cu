// Kernels whose parameters and constants take every form that a cubin states.
// nvcc -arch=sm_NN -cubin -o launch_facts.sm_NN.cubin launch_facts.cu (13.0.88)
// cuobjdump -elf launch_facts.sm_80.cubin > launch_facts.sm_80.elf (13.1.80)
struct Fields { int a; double b; char c[5]; };
struct alignas(64) Map { char bytes[128]; };
__constant__ int primes[4] = {2, 3, 5, 7};
__constant__ float scale[3];
__device__ int counter[100];

extern "C" __global__ void types(float *out, const float *in, int n, long long m, float f, char c, short h,
                                 double d, Fields s, const __grid_constant__ Map map, unsigned char last) {
    out[0] = in[n] + m + f + c + h + d + s.a + s.b + s.c[2] + map.bytes[n] + last;
}
extern "C" __global__ void constants(int *out, int i) {
    out[i] = primes[i] + static_cast<int>(scale[1]) + counter[i];
}
extern "C" __global__ void table(float *out, int k) {
    float v = out[0];
    switch (k) {
    case 0: v = sinf(v); break;
    case 1: v = expf(v); break;
    case 2: v = sqrtf(v); break;
    case 3: v = v * v + 1; break;
    case 4: v = logf(v); break;
    case 5: v = 1 / v; break;
    case 6: v = rsqrtf(v) + 2; break;
    default: v = -v;
    }
    out[0] = v;
}
extern "C" __global__ void none() {}
extern "C" __global__ void __launch_bounds__(128) sized(int *out) {
    out[threadIdx.x] = blockDim.x * gridDim.y;
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 4, 1) clustered(unsigned *out) {
    asm volatile("{.reg .u32 v; mov.u32 v, %%cluster_nctaid.y; st.global.u32 [%0], v;}" ::"l"(out));
}
#endif
