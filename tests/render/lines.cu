// nvcc -arch=sm_80 -lineinfo -cubin lines.cu && nvdisasm -g -c -hex lines.cubin (paths and blanks edited)
extern "C" __global__ void scale(float* x, int n) {
  float a = x[threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < n; ++k)
    a = a * a + x[k];
  x[threadIdx.x] = a;
}
