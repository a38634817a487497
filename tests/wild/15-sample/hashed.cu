// CTAs that differ by a hash or a quotient of their number: no few of them stand for all.
extern "C" __global__ void hashed(float* o) {
  unsigned h = blockIdx.x * 2654435761u;
  if (h < 0x80000000u) { o[threadIdx.x] = 1; o[threadIdx.x + 64] = 2; }
  o[blockIdx.x * 64 + threadIdx.x] = 3;
}
extern "C" __global__ void alternating(float* o) {
  int h = (int)(blockIdx.x * 0x1fffffffu);
  if (h >= 0) { o[threadIdx.x] = 1; o[threadIdx.x + 64] = 2; }
  o[blockIdx.x * 64 + threadIdx.x] = 3;
}
extern "C" __global__ void divided(float* o) {
  long long h = (long long)(int)blockIdx.x * 0x55555556ll;
  if ((int)(h >> 32) % 2 == 0) { o[threadIdx.x] = 1; o[threadIdx.x + 64] = 2; }
  o[blockIdx.x * 64 + threadIdx.x] = 3;
}
extern "C" __global__ void quotients(float* o) {
  o[((int)blockIdx.x / 3 * 255) & 0xffff] = 1;
  o[((blockIdx.x >> 2) + blockIdx.y) & 0xffff] = 2;
}
extern "C" __global__ void odd(float* o, int who) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = 1;
  if (blockIdx.x == who)
    for (int k = 0; k < 9; ++k) o[i + k * 64] = k;
}
