// nvcc -arch=sm_90 -cubin loop.cu: total_90.sass is `cuobjdump -sass` of it, loop.sass its loop, total_90_raw.txt
// `nvdisasm -b SM90` of its code, ../12-other-formats/total_90.json `nvdisasm -json`; padding cut off.
__global__ void total(const float* x, float* y, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; i++) sum += x[i * 256];
    *y = sum;
}
