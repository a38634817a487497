// Loops that retry an atomic exchange: additions of floats and halves, a maximum of floats, locks.
//   for a in 75 90 100; do nvcc -arch=sm_$a -cubin -o a.cubin atomics.cu && cuobjdump -sass a.cubin | grep -v NOP | sed -E "s:\s*/\* 0x[0-9a-f]+ \*/::; /^\s*$/d" > atomics.sm_$a.sass; done
#include <cuda_fp16.h>
#define KERNEL extern "C" __global__ void

KERNEL distinct(float* out, float x) { __shared__ float s[256]; int t = threadIdx.x; s[t] = 0; __syncthreads(); atomicAdd(&s[t], x); __syncthreads(); out[t] = s[t]; }

KERNEL pairs(float* out, float x) { __shared__ float s[256]; int t = threadIdx.x; s[t] = 0; __syncthreads(); atomicAdd(&s[t >> 1], x); __syncthreads(); out[t] = s[t]; }

KERNEL one_word(double* out, double x) { __shared__ double s[32]; int t = threadIdx.x; if (t < 32) s[t] = 0; __syncthreads(); atomicAdd(&s[t >> 5], x); __syncthreads(); if (t < 32) out[t] = s[t]; }

KERNEL halves(__half* out, __half x) { __shared__ __half s[256]; int t = threadIdx.x; s[t] = x; __syncthreads(); atomicAdd(&s[t], x); __syncthreads(); out[t] = s[t]; }

__device__ void raise(float* address, float value) {
  int* word = (int*)address; int old = *word, seen;
  do { seen = old; if (__int_as_float(seen) >= value) break; old = atomicCAS(word, seen, __float_as_int(value)); } while (seen != old);
}
KERNEL maximum(float* out, float x) { __shared__ float s[256]; int t = threadIdx.x; s[t] = 0; __syncthreads(); raise(&s[t], x); __syncthreads(); out[t] = s[t]; }

KERNEL own_locks(int* locks, float* out) { bool done = false; while (!done) { if (atomicCAS(locks + threadIdx.x, 0, 1) == 0) { out[threadIdx.x] += 1.f; __threadfence(); atomicExch(locks + threadIdx.x, 0); done = true; } } }

KERNEL spin_lock(int* lock, float* out) { if (threadIdx.x == 0) { while (atomicExch(lock, 1) != 0) __nanosleep(20); __threadfence(); out[blockIdx.x & 3] += 1.f; __threadfence(); atomicExch(lock, 0); } }
