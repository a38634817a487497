// nvcc -cubin -arch=sm_80 (sm_90), then cuobjdump -sass without the words of code; nvcc -ptx -arch=sm_90.
#include <cassert>
#define STORE(n) _Pragma("unroll 1") for (int i = 0; i < (n); ++i) out[blockIdx.x * blockDim.x + threadIdx.x] = i
#define K extern "C" __global__ void
#define T threadIdx.x
#define NEXT_WARP ((threadIdx.x + 32) & 127)
// Ordered: each load sees one store, whatever the order of warps.
K by_barrier(volatile int* out, int n) { __shared__ int w[128]; w[T] = T % 4 + n; __syncthreads(); STORE(w[NEXT_WARP]); }
K own_word(volatile int* out, int n) { __shared__ volatile int w[128]; w[T] = T % 4 + n; STORE(w[T]); }
K own_warp(volatile int* out, int n) { __shared__ volatile int w[128]; w[T] = T % 4 + n; __syncwarp(); STORE(w[T ^ 1]); }
K same_value(volatile int* out, int n) { __shared__ volatile int w; w = n; STORE(w); }
K two_phases(volatile int* out, int n) { __shared__ int w[128]; int a = 0; _Pragma("unroll 1") for (int k = 0; k < n; ++k) { w[T] = T % 4 + k; __syncthreads(); a += w[NEXT_WARP]; __syncthreads(); } STORE(a); }
K by_pairs(volatile int* out, int n) { __shared__ int w[128]; int g = T / 64; w[T] = T % 4 + n; asm volatile("bar.sync %0, 64;" :: "r"(g + 1) : "memory"); STORE(w[g * 64 + ((T + 32) & 63)]); }
K by_arrival(volatile int* out, int n) { __shared__ int w[32]; if (T < 32) { w[T] = n + T % 4; asm volatile("bar.arrive 1, 64;" ::: "memory"); } else if (T < 64) { asm volatile("bar.sync 1, 64;" ::: "memory"); STORE(w[T - 32]); } }
K counted(volatile int* out, int n) { __shared__ int w; if (T == 0) w = 0; __syncthreads(); if (T % 4 < n) atomicAdd(&w, 1); __syncthreads(); STORE(w); }
K bytes(volatile int* out, int n) { __shared__ volatile unsigned char w[4]; if (T % 32 == 0) w[T / 32] = T / 32 + n; __syncthreads(); STORE(w[NEXT_WARP / 32]); }
K reused(volatile int* out, int n) { __shared__ int w; if (T == 0) w = n; __syncthreads(); int a = w; __syncthreads(); if (T == 33) w = n + 1; __syncthreads(); STORE(a + w); }
K in_place(volatile int* out, int n) { int a = out[blockIdx.x * blockDim.x + T]; STORE(a + n); }
// Not ordered.
K neighbor(volatile int* out, int n) { __shared__ volatile int w[128]; w[T] = T % 4 + n; STORE(w[NEXT_WARP]); }
K one_phase(volatile int* out, int n) { __shared__ volatile int w[128]; int a = 0; _Pragma("unroll 1") for (int k = 0; k < n; ++k) { w[T] = T % 4 + k; __syncthreads(); a += w[NEXT_WARP]; } STORE(a); }
K late_store(volatile int* out, int n) { __shared__ volatile int w; w = 0; __syncthreads(); if (T >= 32) w = n; STORE(w + 1); }
K overwritten(volatile int* out, int n) { __shared__ volatile int w; w = n; __syncthreads(); int a = w; if (T == 40) w = n + 1; STORE(a); }
K other_pair(volatile int* out, int n) { __shared__ volatile int w[128]; int g = T / 64; w[T] = T % 4 + n; asm volatile("bar.sync %0, 64;" :: "r"(g + 1) : "memory"); STORE(w[(T + 64) & 127]); }
K last_writer(volatile int* out, int n) { __shared__ volatile int w; w = T % 8 + n; __syncthreads(); STORE(w); }
K two_leaders(volatile int* out, int n) { __shared__ volatile int w; if (T == 0) w = n; if (T == 32) w = n + 2; __syncthreads(); STORE(w); }
K counting(volatile int* out, int n) { __shared__ int w; if (T == 0) w = n; __syncthreads(); atomicAdd(&w, 1); STORE(*(volatile int*)&w); }
K neighbor_byte(volatile int* out, int n) { __shared__ volatile unsigned char w[128]; w[T] = T % 4 + n; STORE(w[NEXT_WARP]); }
K from_next_cta(volatile int* out, int n) { int a = out[(blockIdx.x * blockDim.x + T + 128) & 255]; STORE(a + n); }
K ticket(volatile int* out, int n) { __shared__ int w; if (T == 0) w = 0; __syncthreads(); if (atomicAdd(&w, 1) < n) out[T] = 1; }
K scattered(volatile int* out, int n) { __shared__ volatile int w[128]; w[T] = T * n; out[w[NEXT_WARP]] = 1; }
// Corrected approximations, and others.
K remainder_of(volatile int* out, int n) { STORE((T * 77 + 5) / n % 7); }
K quotient(volatile int* out, float n) { STORE((int)((T + 1) * 10.0f / n)); }
K root(volatile int* out, float n) { STORE((int)sqrtf((T + 1) * n)); }
K clear_cut(volatile int* out, float n) { if (__fdividef(T + 0.5f, n) < 7.0f) out[T] = 1; }
K only_data(volatile float* out, float n) { out[T] = __fdividef(T * n, n); }
K fast_quotient(volatile int* out, float n) { STORE((int)__fdividef((T + 1) * n, n)); }
K power(volatile int* out, float n) { STORE((int)exp2f((T & 3) * n)); }
K places(volatile int* out, float n) { out[(int)__fdividef(T * n, n)] = 1; }
// Traps.
K trapped(volatile int* out, int n) { if (T == n) __trap(); STORE(1); }
K late_trap(volatile int* out, int n) { _Pragma("unroll 1") for (int i = 0; i < n; ++i) { out[T] = i; if (i == 100) __trap(); } }
K asserted(volatile int* out, int n) { assert(T != n); STORE(1); }
// Types.
__global__ void scale(volatile int* out, float n, long long m) {
#pragma unroll 1
  for (float x = 0; x < n; x += 1.f) out[T] = 1;
#pragma unroll 1
  for (long long i = 0; i < m; ++i) out[T] = 2;
}
struct Config { int a; float b; };
__global__ void numbers(volatile int* out, double d, bool b, char c, unsigned u, short s, Config f) {
#pragma unroll 1
  for (int i = 0; i < (int)d; ++i) out[T] = 1;
#pragma unroll 1
  for (int i = 0; i < b; ++i) out[T] = 1;
#pragma unroll 1
  for (int i = 0; i < c; ++i) out[T] = 1;
#pragma unroll 1
  for (unsigned i = 0; i < u; ++i) out[T] = 1;
#pragma unroll 1
  for (int i = 0; i < s; ++i) out[T] = 1;
#pragma unroll 1
  for (int i = 0; i < f.a + (int)f.b; ++i) out[T] = 1;
}
