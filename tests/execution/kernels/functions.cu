// Functions that are called where memory decides: they come back, end the thread, or call each other.

extern "C" {
// The slow way of 1 / x is a function.
__global__ void reciprocal(const float *in, float *out, int n) {
  const int t = threadIdx.x;
  const float r = 1.0f / in[t];
#pragma unroll 1
  for (int i = 0; i < n; i++) out[t + 64 * i] = r * i;
}

// All lanes take the same way, which joins the fast one at once.
__global__ void alike(const float *in, float *out, int n) {
  const float r = in[blockIdx.x] / n;
  for (int i = 0; i < n; i++) out[threadIdx.x + 64 * i] = r * i;
}

// One function for two quotients, in a loop.
__global__ void quotients(const float *in, float *out, int n) {
  const int t = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    out[t + 128 * i] = in[t] / in[i];
    out[t + 128 * i + 64] = in[i] / (in[t] + 1.0f);
  }
  if (t < n) out[t] = n;
}
}

__device__ __noinline__ int checked(const int *in, int t) {
  const int found = in[t];
  if (found > 3) asm volatile("exit;");
  return found * t;
}
extern "C" __global__ void gives_up(const int *in, int *out, int n) {
  const int t = threadIdx.x;
  out[t] = 1;
  int r = t;
  if (in[t + 64] > 2) r = checked(in, t) + checked(in, t + 1);
#pragma unroll 1
  for (int i = 0; i < n; i++) out[t + 64 * i] = r + i;
}

// One call deep or two: the function that the doubt is about comes back, the one that it calls need not.
__device__ __noinline__ int asks(const int *in, int t) { return checked(in, t + 2) + checked(in, t + 5) + 1; }
extern "C" __global__ void gives_up_below(const int *in, int *out, int n) {
  const int t = threadIdx.x;
  int r = t;
  if (in[t + 64] > 2) r = asks(in, t) + asks(in, t + 9);
  out[t] = r + n;
}

// A function does not know where its pointers lead.
__device__ int of(const int *in) {
  int found;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(found) : "l"(__cvta_generic_to_global(in)));
  return found;
}
__device__ void put(int *out, int n) {
  asm volatile("st.global.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(out)), "r"(n));
}

// Who calls whom how often hangs on memory; the launch alone says how often the kernel goes on behind it.
__device__ __noinline__ int descends(const int *in, int *out, int t, int n) {
  int found = n;
  if (n > 0 && of(in + t + n) > 3) found += descends(in, out, t, n - 1) * 3;
  put(out + t + found, n);
  return found;
}
extern "C" __global__ void recurses(const int *in, int *out, int n) {
  const int t = threadIdx.x;
  out[t] = descends(in, out + 64, t, n);
}

__device__ __noinline__ int odd(const int *in, int *out, int t, int n);
__device__ __noinline__ int even(const int *in, int *out, int t, int n) {
  int found = n;
  if (n > 0 && of(in + t + n) > 2) found += odd(in, out, t, n - 1) * 5;
  put(out + t + found, n);
  return found;
}
__device__ __noinline__ int odd(const int *in, int *out, int t, int n) {
  int found = 1 - n;
  if (n > 0 && of(in + t + n + 1) > 2) found -= even(in, out, t + 1, n - 1);
  put(out + t - found, n);
  return found;
}
extern "C" __global__ void alternates(const int *in, int *out, int n) {
  const int t = threadIdx.x;
  out[t] = even(in, out + 64, t, n);
}
