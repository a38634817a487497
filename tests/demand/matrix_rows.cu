// Eight warps read the same 16 x 16 numbers of 16 bits over and over, two LDSM at a time, rows PITCH bytes apart.
#include <stdint.h>

template <int PITCH>
__device__ __forceinline__ void read_rows(uint32_t *out, int rounds) {
  __shared__ __align__(128) unsigned char tile[32 * PITCH + 256];
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < sizeof(tile) / 4; i += 256) reinterpret_cast<uint32_t *>(tile)[i] = i;
  __syncthreads();
  const uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(tile)) + lane % 16 * PITCH + lane / 16 * 16;
  uint32_t sum = 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a, b, c, d;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                   : "r"(from));
      sum ^= a ^ b ^ c ^ d;
    }
  }
  out[threadIdx.x] = sum;
}

extern "C" __global__ void rows_32(uint32_t *out, int rounds) { read_rows<32>(out, rounds); }
extern "C" __global__ void rows_64(uint32_t *out, int rounds) { read_rows<64>(out, rounds); }
extern "C" __global__ void rows_128(uint32_t *out, int rounds) { read_rows<128>(out, rounds); }
extern "C" __global__ void rows_144(uint32_t *out, int rounds) { read_rows<144>(out, rounds); }
