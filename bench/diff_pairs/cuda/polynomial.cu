// Arithmetic on registers: no memory to speak of, so the pipes decide.
#ifndef REAL
#define REAL float
#endif
#ifndef STEPS
#define STEPS 256
#endif
#ifndef UNROLL
#define UNROLL 8
#endif
#ifndef COEFFICIENT
#define COEFFICIENT 0.5f
#endif
#ifndef FUNCTION
#define FUNCTION 0
#endif
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(count) PRAGMA(unroll count)

// Four independent chains of multiply-adds.
extern "C" __global__ void horner(const REAL *in, REAL *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  REAL x = in[i], a = x, b = x + 1, c = x + 2, d = x + 3;
  UNROLL_BY(UNROLL)
  for (int step = 0; step < STEPS; ++step) {
    a = a * x + REAL(COEFFICIENT);
    b = b * x + REAL(COEFFICIENT);
    c = c * x + REAL(COEFFICIENT);
    d = d * x + REAL(COEFFICIENT);
  }
  out[i] = a + b + c + d;
}

// One transcendental function per step.
extern "C" __global__ void special(const float *in, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i];
#pragma unroll 4
  for (int step = 0; step < 64; ++step) {
#if FUNCTION == 0
    x = 1.0f / sqrtf(x + 2.0f);
#elif FUNCTION == 1
    x = rsqrtf(x + 2.0f);
#elif FUNCTION == 2
    x = expf(-x) * 0.5f;
#elif FUNCTION == 3
    x = __expf(-x) * 0.5f;
#elif FUNCTION == 4
    x = 3.0f / (x + 1.5f);
#elif FUNCTION == 5
    x = sinf(x + 0.5f);
#else
    x = __sinf(x + 0.5f);
#endif
  }
  out[i] = x;
}
