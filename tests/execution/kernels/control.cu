// Kernels with hard control flow, for tests/execution/test_machine.py: what decides is known at launch.
// Build: nvcc -O3 -cubin -arch=sm_XX control.cu; cuobjdump -sass -elf.
#include <cstdint>

__global__ void nested_ifs(int *out, int a, int b) {
  int t = threadIdx.x, r = 0;
  if (t & 1) {
    out[t] = 1;
    if (t % 3 == a) { for (int i = 0; i < t; i++) { out[i + b] = i; if (i == a + 5) break; } }
    else if (t > b) { out[2 * t] = 7; } else { for (int i = t; i > 0; i -= 2) out[i * 3] = i; }
    r = 1;
  } else {
    int i = 0;
    while (i < (t & 7)) { if (i == a) { i += 2; continue; } out[i + 1000] = t; i++; }
    r = i;
  }
  out[t + 4096] = r;
}

__global__ void break_continue(int *out, int n, int m, int stop) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  int sum = 0;
  for (int i = 0; i < n; i++) {
    if ((i + t) % 5 == 0) continue;
    for (int j = i; j < m; j++) {
      if (j * i > stop + t) break;
      if ((j ^ t) & 1) continue;
      sum += j; out[t] = sum;
    }
    if (sum > stop * 8) break;
  }
  out[t + (1 << 20)] = sum;
}

__global__ void early_return(int *out, int n, int m) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  out[t] = 0;
  if (t % 7 == 3) { out[2 * n + t] = 1; return; }
  for (int i = 0; i < m; i++) { out[n + i] = t; if (i == t) return; }
  out[3 * n + t] = 2;
}

__global__ void switches(int *out, int n, int m) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < m; i++) {
    switch ((t + i) % n) {
      case 0: out[t] = i; break;
      case 1: out[t * 2 + 1] = i * t; break;
      case 2: for (int j = 0; j < i; j++) out[j * 64 + t] = j;
      case 3: out[t + 9] ^= i; break;
      case 4: out[3 * t] = i / 3; break;
      case 5: out[t + 77] = i << 3; break;
      case 6: return;
      case 7: out[t * 5] = i + 100; break;
      case 8: out[t + 100] = i - 100; break;
      case 9: if (t & 1) continue; out[t * 7] = 12; break;
      default: out[0] = 3;
    }
    out[t + 100000] = i;
  }
}

__global__ void do_whiles(int *out, int n, int step) {
  int t = threadIdx.x + threadIdx.y * blockDim.x;
  int i = t;
  do { out[i] = i; i += step; } while (i < n);
  int k = n;
  while (true) { k -= step; if (k < t) break; out[k + n] = k; if (k % 11 == 10) break; }
  out[t] = k;
}

__global__ void counts64(int *out, long long first, long long last, long long step) {
  for (long long i = first + threadIdx.x; i < last; i += step) out[i - first] = (int)i;
}

__global__ void countsu64(int *out, unsigned long long n) {
  for (unsigned long long i = n; i >= 3; i -= 3) out[i & 255] = 1;
}

__global__ void unsigned_down(int *out, unsigned n, unsigned step) {
  for (unsigned i = n + threadIdx.x; i >= step; i -= step) out[i] = 1;
  for (int i = (int)n; i >= -(int)step; i--) out[i + step] = 2;
  for (unsigned i = n; i-- > 0;) out[i * 2 + threadIdx.x] = 3;
}

__global__ void geometric(int *out, int n, unsigned m) {
  int t = threadIdx.x;
  for (int i = 1 + t; i < n; i *= 2) out[i] = 1;
  for (unsigned i = m + t; i; i >>= 1) out[i & 1023] = 2;
  for (int i = n; i > t; i /= 3) out[i + n] = 3;
  for (int i = n; i > 0; i &= i - 1) out[2 * n + i] = 4;
}

__global__ void squares(int *out, int n) {
  int t = threadIdx.x;
  for (int i = t; i * i < n; i++) out[i] = 1;
  for (unsigned i = 1, j = 1; i < n; j++, i += j) out[i] = 2;
}

__global__ void triangles(int *out, int n, int m) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) out[i * n + j] = t;
  for (int i = t; i < m; i += gridDim.x * blockDim.x)
    for (int j = 0; j <= i; j++) { out[i + j * m] = 1; }
  for (int i = 0; i < n; i++)
    for (int j = i; j < n; j += 1 + i)
      for (int k = j; k < n; k++) out[k] = 1;
}

__global__ void grid_stride_2d(int *out, int w, int h, int pitch) {
  for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < h; y += gridDim.y * blockDim.y)
    for (int x = blockIdx.x * blockDim.x + threadIdx.x; x < w; x += gridDim.x * blockDim.x)
      out[y * pitch + x] = x;
}

__global__ void grid_stride_3d(char *out, int w, int h, int d) {
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (z < d && y < h && x < w) {
    out[(z * h + y) * w + x] = 1;
    if (x == y) for (int i = 0; i < z; i++) out[i] = 2;
  }
}

template <int N> __device__ void stages(int *out, int n) {
  __shared__ int ring[N * 64];
  int t = threadIdx.x, stage = 0, phase = 0;
  for (int i = 0; i < n; i++) {
    ring[stage * 64 + (t & 63)] = i;
    __syncthreads();
    out[i * 64 + t] = ring[stage * 64 + ((t + 1) & 63)];
    if (phase) out[t] = 5;
    if (++stage == N) { stage = 0; phase ^= 1; }
  }
}
__global__ void stages3(int *out, int n) { stages<3>(out, n); }
__global__ void stages5(int *out, int n) { stages<5>(out, n); }

__global__ void stage_modulo(int *out, int n, int m) {
  int t = threadIdx.x;
  for (int i = 0; i < n; i++) { out[(i % 3) * 1000 + t] = i; out[(i % m) * 1000 + 10000] = i; }
}

__global__ void divide(int *out, int a, int b, unsigned c, unsigned d) {
  int t = threadIdx.x;
  int q = (a + t) / b, r = (a - t) % b;
  unsigned u = (c + t) / d, v = (c * t) % d;
  for (int i = 0; i < (q & 15); i++) out[i] = 1;
  for (int i = r; i < 3; i++) out[i + 8192] = 1;
  if (u & 1) out[v] = 2; else out[u & 4095] = 3;
}

__global__ void divide64(int *out, long long a, long long b, unsigned long long c, unsigned long long d) {
  int t = threadIdx.x;
  long long q = (a + t) / b, r = (a * t) % b;
  if (t % 3) { unsigned long long u = (c + t) / d; out[u & 1023] = 1; q += (long long)(c % (d + t)); }
  for (int i = 0; i < (q & 15); i++) out[i + 2048] = 1;
  for (int i = 0; i < ((r < 0 ? -r : r) & 7); i++) out[i + 4096] = 1;
}

__device__ __noinline__ int helper(int *out, int n, int t) {
  int s = 0;
  for (int i = 0; i < n; i++) { if ((i ^ t) & 2) continue; out[i] = t; s += i; }
  return s;
}
__device__ __noinline__ int outer(int *out, int n, int t) {
  if (t & 1) return helper(out, n, t) + 1;
  int r = helper(out + 128, n / 2, t + 1);
  if (r > n) return 3;
  return r + helper(out + 256, t & 3, r);
}
__global__ void calls(int *out, int n, int m) {
  int t = threadIdx.x, s = 0;
  if (t < m) s = helper(out, n, t);
  else if (t % 3 == 0) { for (int i = 0; i < 3; i++) s += outer(out + i * 512, n + i, t); }
  out[(s & 255) + 4096] = s;
  s += outer(out, s & 7, t + s);
  out[(s & 255) + 8192] = s;
}

__device__ __noinline__ int fib(int *out, int n) {
  out[n + 64] = n;
  if (n < 2) return n;
  return fib(out, n - 1) + fib(out, n - 2);
}
__global__ void recursion(int *out, int n) {
  int t = threadIdx.x;
  out[t] = fib(out, (t % 3) + n);
}

__device__ __noinline__ int depth(int *out, int n, int t) {
  out[n & 31] = t;
  if (n <= 0) return t;
  int r = depth(out, n - 1, t + 1);
  if (r & 1) out[r & 127] = n;
  return r + n;
}
__global__ void recursion_linear(int *out, int n) {
  out[threadIdx.x] = depth(out + 64, n + (threadIdx.x & 3), threadIdx.x);
}

__global__ void shuffles(int *out, int n) {
  int t = threadIdx.x, lane = t & 31;
  int v = t * n;
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  if (v & 64) out[t] = v;
  int up = __shfl_up_sync(~0u, lane * n, 3), down = __shfl_down_sync(~0u, t, 5), at = __shfl_sync(~0u, t * 3, (lane * n) & 31);
  for (int i = 0; i < (up & 7); i++) out[i + 1024] = at;
  if (down > at) out[t + 2048] = 1;
  for (int i = 0; i < __shfl_sync(~0u, n, 0) ; i++) out[i + lane] = 2;
}

__global__ void votes(int *out, int n) {
  int t = threadIdx.x, lane = t & 31;
  unsigned ballot = __ballot_sync(~0u, (t * n) % 5 < 2);
  if (ballot >> lane & 1) out[__popc(ballot & ((1u << lane) - 1))] = t;
  if (__any_sync(~0u, t == n)) out[t + 100] = 1;
  if (__all_sync(~0u, t < n)) out[t + 200] = 1;
  int left = t % (n + 1);
  while (__any_sync(~0u, left > 0)) { if (left > 0) out[left + 300] = 1; left -= 2; }
  if (lane < (n & 31)) { unsigned active = __activemask(); out[__popc(active) + 600] = 2; int first = __ffs(active) - 1; if (lane == first) out[lane + 700] = 2; }
  unsigned peers = __match_any_sync(~0u, (t * n) & 3);
  if (lane == 31 - __clz(peers)) out[t + 900] = 1;
}

__global__ void reduce(int *out, int n) {
  __shared__ int part[256];
  int t = threadIdx.x, sum = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += i;
  part[t] = sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) { if (t < s) part[t] += part[t + s]; __syncthreads(); }
  if (t == 0) out[blockIdx.x] = part[0];
  if (part[0] % 3 == 1) out[part[0] & 1023] = t;
}

__global__ void shared_indices(int *out, int n) {
  __shared__ int next[128];
  __shared__ short len[128];
  __shared__ unsigned char flag[128];
  int t = threadIdx.x;
  next[t] = (t * 7 + n) & 127;
  len[t] = (short)((t * n) % 9 - 2);
  flag[t] = (unsigned char)(t * n);
  __syncthreads();
  int at = t;
  for (int i = 0; i < len[at]; i++) { at = next[at]; out[at] = i; if (flag[at] > 200) break; }
  __syncthreads();
  if (t < n) atomicAdd(&next[t & 7], 1);
  __syncthreads();
  for (int i = 0; i < (next[t & 7] & 15); i++) out[i + 512] = at;
}

__global__ void work_list(int *out, int n) {
  __shared__ int list[256];
  __shared__ int count;
  int t = threadIdx.x;
  if (t == 0) count = 0;
  __syncthreads();
  if ((t * n) % 7 == 3) atomicAdd(&count, 1);
  __syncthreads();
  for (int i = t; i < count; i += blockDim.x) list[i] = i * n;
  __syncthreads();
  for (int i = 0; i < count; i++) { out[list[i] & 1023] = t; if (list[i] == 3 * n) break; }
}

__global__ void local_array(int *out, int n, int k) {
  int table[8];
  #pragma unroll
  for (int i = 0; i < 8; i++) table[i] = i * n + 1;
  int t = threadIdx.x, at = k;
  for (int i = 0; i < (t & 7); i++) { at = table[at & 7]; out[at & 1023] = i; }
  table[k & 7] = t & 3;
  for (int i = 0; i < table[(k + n) & 7]; i++) out[i + 1024] = 1;
}

__global__ void local_lanes(int *out, int n) {
  int table[16];
  int t = threadIdx.x;
  for (int i = 0; i < 16; i++) table[(i * n + t) & 15] = i & 3;
  for (int i = 0; i < table[t & 15]; i++) out[i] = t;
}

__global__ void dynamic_shared(int *out, int n) {
  extern __shared__ int data[];
  int t = threadIdx.x;
  for (int i = t; i < n; i += blockDim.x) data[i] = i * i;
  __syncthreads();
  for (int i = t; i < n - 1; i += blockDim.x) if (data[i + 1] - data[i] > n) out[data[i] & 1023] = i;
}

struct Box { int low, high; long long pitch; int *out; struct { short a, b; unsigned char c; } more; };
__global__ void structs(Box box, int k) {
  for (int i = box.low; i < box.high; i++)
    if (threadIdx.x < box.more.c) box.out[i * box.pitch + threadIdx.x] = box.more.a * k;
  if (box.more.b < 0) box.out[threadIdx.x + k] = 0;
}

__global__ void ragged(int *out, const int *in, int n) {
  int base = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  #pragma unroll
  for (int i = 0; i < 4; i++) if (base + i < n) out[base + i] = in[base + i] + 1;
}

__global__ void early_exit_barrier(int *out, int n, int m) {
  __shared__ int part[256];
  int t = threadIdx.x;
  if (t >= n) return;
  part[t] = t * m;
  for (int i = 0; i < m; i++) {
    __syncthreads();
    int v = part[(t + i) % n];
    __syncthreads();
    part[t] = v + 1;
    if (v & 1) out[v & 511] = i;
  }
  out[part[t] & 1023] = 1;
}

__global__ void shapes(int *out, int n) {
  int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.z == 1 && threadIdx.y > n) return;
  for (int i = threadIdx.x; i < n; i += blockDim.x) if (i != (int)threadIdx.y) out[i * 1024 + t] = 1;
  for (int i = b; i < n; i += 3) out[t] = i;
  if (b % 3 == 1 && t % 5 < 2) out[b * 1024 + t] = 1;
}

__global__ void csr(int *out, const int *rows, const int *cols, int n) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= n) return;
  int sum = 0;
  for (int i = rows[r]; i < rows[r + 1]; i++) { int c = cols[i]; if (c < 0) break; out[c] = i; sum++; }
  out[sum + 4096] = r;
}

__global__ void collatz(int *out, const unsigned *in, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  unsigned v = in[t];
  int steps = 0;
  while (v > 1) { v = v & 1 ? 3 * v + 1 : v >> 1; steps++; }
  out[t] = steps;
  out[1024 + steps] = t;
}

__global__ void bytes(int *out, const signed char *in, const unsigned short *limit, int n) {
  int t = threadIdx.x;
  int k = in[t];
  for (int i = k; i < limit[t & 15]; i += 5) out[i + 128] = t;
  if (k < n) out[t] = 1;
}

__global__ void in_place(volatile int *data, int n) {
  int t = threadIdx.x;
  for (int step = 0; step < n; step++) {
    int v = data[t];
    if (v & 1) data[t] = v + 1; else data[t] = v / 2;
    data[256 + t] = step;
  }
  if (data[t] > 2) data[512 + t] = 0;
}

__global__ void sync_loop(int *out, int n, int m) {
  int t = threadIdx.x;
  for (int i = 0; i < n; i++) {
    if (t < 32 * (i % 3)) for (int j = 0; j < ((t + m) & 3); j++) out[j + i] = t;
    __syncthreads();
    if ((i & 3) == (m & 3)) continue;
    __syncwarp();
    out[t + 1024] = i;
    if (i > t + m) { out[t] = 1; }
  }
}

__global__ void warp_roles(int *out, int n) {
  __shared__ int box[64];
  int t = threadIdx.x, w = t / 32, lane = t & 31;
  if (w == 0) {
    for (int i = 0; i < n; i++) { box[lane] = i * lane; asm volatile("bar.sync 1, 64;"); asm volatile("bar.sync 2, 64;"); }
  } else if (w == 1) {
    for (int i = 0; i < n; i++) {
      asm volatile("bar.sync 1, 64;");
      if (box[lane] & 4) out[box[lane] & 255] = i;
      asm volatile("bar.sync 2, 64;");
    }
  } else {
    for (int i = w; i < n; i += 3) out[i * 32 + lane] = w;
  }
  __syncthreads();
  out[t + 4096] = 1;
}

__global__ void gotos(int *out, int n, int m) {
  int t = threadIdx.x, i = 0, j = 0;
  if (t & 1) goto middle;
top:
  out[i] = t;
  i++;
middle:
  out[i + 64] = j;
  j += 2;
  if (i < (t & 3) + n) goto top;
  if (j < m) { if ((t ^ j) & 4) { i = 0; goto top; } goto middle; }
  out[t + 256] = j;
}

__global__ void constants(int *out, int n, int k) {
  const int primes[11] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31};
  int t = threadIdx.x;
  for (int i = 0; i < primes[(t + n) % 11]; i += primes[k & 7]) out[i] = t;
}

__global__ void min_max(int *out, int n, unsigned m) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  int end = min(n, t + 10), begin = max(-3, t - 7);
  for (int i = begin; i < end; i++) out[min(i + 3, 50)] = 1;
  for (unsigned i = 0; i < min(m, 17u); i++) out[min(max(i * 3, m), 99u)] = abs(n - (int)i);
  for (int i = 0; i < n; i++) out[max(i - t, 0) + min(i, 5)] = (i > 4 ? i : 4);
  for (int i = 0; i < n; i++) { int k = i > m ? i - m : i; out[k * 4] = 1; out[abs(i - 7)] = 2; }
}

__global__ void bits(int *out, unsigned n) {
  unsigned t = threadIdx.x + n;
  for (unsigned v = t; v; v &= v - 1) out[__ffs(v) + 32] = __popc(v);
  for (int i = 0; i < __clz(t); i++) out[i] = __brev(t) >> 30;
  for (unsigned i = 0; i < n; i++) { out[i & 12] = 1; out[(i >> 2) * 3] = 2; out[(i ^ 5)] = 3; out[i | 3] = 4; out[((i & 3) << 5) | (i >> 2 & 7)] = 5; }
}

__global__ void wraps(int *out, unsigned n, unsigned step) {
  unsigned short s = threadIdx.x;
  unsigned char c = 0;
  for (unsigned i = 0; i < n; i++) { s += 40000; c += 3; if (s < 20000) out[c] = 1; if (c == 0) out[256] = 1; }
  unsigned v = 0xfffffff0u;
  for (unsigned i = 0; i < n; i++) { v += step; if (v < 100) out[v + 300] = 1; if ((int)v < 0) out[512] = 1; }
}

__global__ void sync_exit(int *out, int n) {
  int t = threadIdx.x, lane = t & 31;
  if (lane & 1) {
    for (int i = 0; i < (lane & 7) + n; i++) out[i + lane] = 1;
    if (lane & 2) return;
    __syncwarp(0x11111111u << 1);
    out[lane + 64] = 2;
    return;
  }
  for (int i = 0; i < (lane & 6); i++) out[i + 128] = 1;
  __syncwarp(0x55555555u);
  out[lane + 256] = 3;
}

__device__ __noinline__ int pick(const int *in, int *out, int t) {
  if (in[t] > 3) { for (int i = 0; i < t; i++) out[i * t] = 1; return t + 1; }
  for (int i = in[1]; i < t; i++) { out[i + 64] = 2; if (i == 7) return 5; }
  return 0;
}
__global__ void doubtful_call(const int *in, int *out, int n) {
  int t = threadIdx.x, r = pick(in, out, t);
  if (r) for (int i = 0; i < n * t; i++) out[i * i + 128] = 3;
  for (int i = 0; i < n; i++) r += pick(in + 32, out + i, t);
  if (r > 40) out[t + 256] = 4;
}

__global__ void endless(volatile int *in, int *out) { while (true) { if (in[0] == 12345) out[1] = 1; } }
__global__ void never_changed(int *out, int n) { while (n) { out[threadIdx.x] = n; asm volatile(""); } out[1] = 2; }
__global__ void endless_walk(int *out, int n) { for (unsigned i = threadIdx.x;; i = i * 1664525u + n) out[i & 1023] = 1; }
__device__ __noinline__ int deeper(int *out, int n) { out[n & 63] = n; return deeper(out, n + 1) + n; }
__global__ void bottomless(int *out, int n) { out[0] = deeper(out, n); }
