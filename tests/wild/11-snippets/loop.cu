// The loop of `loop.sass` is that of this kernel: nvcc -arch=sm_90 -cubin loop.cu; cuobjdump -sass loop.cubin
__global__ void total(const float* x, float* y, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; i++) sum += x[i * 256];
    *y = sum;
}
