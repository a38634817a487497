// A call of the system, whose result decides what is stored.

extern "C" __global__ void allocates(int **out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int *own = static_cast<int *>(malloc(64));
  if (own != nullptr)
    for (int k = 0; k < 16; k++) own[k] = k * i;
  out[i] = own;
}
