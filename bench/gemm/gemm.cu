// C = alpha * A' * B + beta * C in FP32 with tunable tiles, after the parameters of CLBlast's Xgemm; written anew.
//
// A CTA of MDIMC x NDIMC threads makes MWG x NWG results over steps of KWG; a thread's lie side by side. SA, SB:
// whether A's and B's tiles go through shared memory, which MDIMA and NDIMB columns of threads fill, or are
// read through the L1. VWM, VWN: floats of an access.

template <int N> struct alignas(N > 4 ? 16 : 4 * N) Floats {
  float of[N];
};
using VecM = Floats<VWM>;
using VecN = Floats<VWN>;

constexpr int kThreads = MDIMC * NDIMC;
constexpr int kRows = MWG / MDIMC, kColumns = NWG / NDIMC;
constexpr int kUnrolled = 2;

// nvcc 13 reads neighbouring words of shared memory by one instruction even where the source does not say so;
// the measured code reads them as it is written: narrow configurations pay for their bank conflicts.
template <int N> __device__ Floats<N> read(const Floats<N> *from) {
  Floats<N> to;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(from));
  if constexpr (N == 1) {
    asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(to.of[0]) : "r"(at) : "memory");
  } else if constexpr (N == 2) {
    asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to.of[0]), "=f"(to.of[1]) : "r"(at) : "memory");
  } else {
    to = *from;
  }
  return to;
}

// A tile of KWG rows of `width` floats, by threads in `across` columns; `from` begins at the CTA's first one.
template <int kWidth, int kAcross, typename Vec>
__device__ void fill(Vec *tile, const Vec *__restrict__ from, int pitch, int thread) {
  constexpr int kVec = sizeof(Vec) / sizeof(float);
  constexpr int kDown = KWG * kAcross / kThreads, kOwn = kWidth / kAcross / kVec;
  const int column = thread % kAcross * kOwn, row = thread / kAcross * kDown;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kDown; ++j)
      tile[(row + j) * (kWidth / kVec) + column + i] = from[(row + j) * pitch + column + i];
}

extern "C" __global__ void __launch_bounds__(kThreads)
gemm(int m, int n, int k, float alpha, float beta, const VecM *__restrict__ a, const VecN *__restrict__ b, VecM *c) {
#if SA
  __shared__ VecM tile_a[KWG * MWG / VWM];
#endif
#if SB
  __shared__ VecN tile_b[KWG * NWG / VWN];
#endif
  [[maybe_unused]] const int thread = threadIdx.x + MDIMC * threadIdx.y;
  const int first_m = blockIdx.x * (MWG / VWM), first_n = blockIdx.y * (NWG / VWN);
  const int own_m = threadIdx.x * (kRows / VWM), own_n = threadIdx.y * (kColumns / VWN);
  float sums[kColumns][kRows];
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
#pragma unroll
    for (int j = 0; j < kRows; ++j) sums[i][j] = 0.0f;

  for (int block = 0; block < k; block += KWG) {
#if SA
    fill<MWG, MDIMA>(tile_a, a + block * (m / VWM) + first_m, m / VWM, thread);
#endif
#if SB
    fill<NWG, NDIMB>(tile_b, b + block * (n / VWN) + first_n, n / VWN, thread);
#endif
#if SA || SB
    __syncthreads();
#endif
    for (int part = 0; part < KWG; part += kUnrolled) {
#pragma unroll
      for (int at = part; at < part + kUnrolled; ++at) {
        VecM left[kRows / VWM];
        VecN right[kColumns / VWN];
#pragma unroll
        for (int i = 0; i < kRows / VWM; ++i)
#if SA
          left[i] = read(tile_a + at * (MWG / VWM) + own_m + i);
#else
          left[i] = a[(at + block) * (m / VWM) + first_m + own_m + i];
#endif
#pragma unroll
        for (int i = 0; i < kColumns / VWN; ++i)
#if SB
          right[i] = read(tile_b + at * (NWG / VWN) + own_n + i);
#else
          right[i] = b[(at + block) * (n / VWN) + first_n + own_n + i];
#endif
#pragma unroll
        for (int i = 0; i < kColumns; ++i)
#pragma unroll
          for (int j = 0; j < kRows; ++j)
            sums[i][j] += left[j / VWM].of[j % VWM] * right[i / VWN].of[i % VWN];
      }
    }
#if SA || SB
    __syncthreads();
#endif
  }

#pragma unroll
  for (int i = 0; i < kColumns; ++i)
#pragma unroll
    for (int j = 0; j < kRows / VWM; ++j) {
      const int column = blockIdx.y * NWG + threadIdx.y * kColumns + i;
      const int at = column * (m / VWM) + first_m + own_m + j;
      const VecM old = c[at];
      VecM result;
#pragma unroll
      for (int v = 0; v < VWM; ++v) result.of[v] = alpha * sums[i][j * VWM + v] + beta * old.of[v];
      c[at] = result;
    }
}
