// arrays_80.txt, arrays_90.txt: nvdisasm (12.8) of this file by ptxas 12.8, whole; arrays_80_code.txt: with -c.
//   nvcc -ptx -arch=sm_80 arrays.cu, ptxas -arch=sm_80, nvdisasm arrays.cubin
extern "C" __global__ void with_array(const float *in, float *out) {
    __shared__ float tile[10240];
    for (int i = threadIdx.x; i < 10240; i += blockDim.x) tile[i] = in[i];
    __syncthreads();
    out[threadIdx.x] = tile[10239 - threadIdx.x];
}
extern "C" __global__ void without(const float *in, float *out) { out[threadIdx.x] = in[threadIdx.x]; }
