// Warp-specialized kernels: one warp group fetches through the copy engine, the others compute, and
// mbarriers hand the stages over.  Compiled for sm_90a, where registers move between the roles.
//
// Part of the proof corpus of `tests/execution/closed_forms.py`.  A tile comes in steps; what a thread
// sums of all steps is its one output of the tile.  Any grid; the block is 128 threads for each role.
// No header is included: line tables name nothing else than this file.

using Mbarrier = unsigned long long;
struct alignas(64) TensorMap { unsigned long long words[16]; };  // CUtensorMap of <cuda.h>

constexpr int kGroup = 128;  // threads of a warp group
constexpr int kStages = 4;
constexpr int kRows = 64;    // of a box
constexpr int kCols = 32;    // of a box, in floats
constexpr int kSize = kRows * kCols;

static __device__ __forceinline__ unsigned int shared(const void *at) {
  unsigned long long address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(at));
  return static_cast<unsigned int>(address);
}

static __device__ __forceinline__ void init(Mbarrier *at, unsigned int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(at)), "r"(count) : "memory");
}

static __device__ __forceinline__ void init_both(Mbarrier *full, Mbarrier *empty, unsigned int on_full,
                                                 unsigned int on_empty) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      init(&full[i], on_full);
      init(&empty[i], on_empty);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
}

static __device__ __forceinline__ unsigned long long arrive(Mbarrier *at) {
  unsigned long long token;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(shared(at)) : "memory");
  return token;
}

static __device__ __forceinline__ void expect(Mbarrier *at, unsigned int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(at)), "r"(bytes)
               : "memory");
}

// One thread's share of a box, and what it comes to.
struct Sums {
  float parts[kSize / kGroup] = {};

  __device__ __forceinline__ void add(const float *from, int thread) {
#pragma unroll
    for (int i = 0; i < kSize / kGroup; i++) parts[i] += from[i * kGroup + thread];
  }

  __device__ __forceinline__ float total() const {
    float sum = parts[0];
#pragma unroll
    for (int i = 1; i < kSize / kGroup; i++) sum += parts[i];
    return sum;
  }
};

// ---- a tensor map, and waiting by token as the library does ---------------------------------------

static __device__ __forceinline__ void arrive_and_wait(Mbarrier *at) {
  const unsigned long long token = arrive(at);
  unsigned int is_done = 0;
  while (!is_done) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}\n" : "=r"(is_done) : "r"(shared(at)), "l"(token) : "memory");
  }
}

// Block of 256: a producer, a consumer.
extern "C" __global__ void __launch_bounds__(2 * kGroup, 1)
    tile_sums(const __grid_constant__ TensorMap map, float *out, int tiles, int steps) {
  __shared__ alignas(128) float boxes[kStages][kSize];
  __shared__ Mbarrier full[kStages], empty[kStages];
  init_both(full, empty, kGroup + 1, kGroup + 1);
  int stage = 0;
  if (threadIdx.x < kGroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x != 0) return;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      for (int step = 0; step < steps; step++, stage++) {
        if (stage == kStages) stage = 0;
        arrive_and_wait(&empty[stage]);
        expect(&full[stage], sizeof(boxes[0]));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared(boxes[stage])), "l"(&map), "r"(step * kCols),
            "r"(tile * kRows), "r"(shared(&full[stage])) : "memory");
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 40;");
    const int thread = threadIdx.x - kGroup;
    for (int i = 0; i < kStages; i++) arrive(&empty[i]);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      Sums sums;
      for (int step = 0; step < steps; step++, stage++) {
        if (stage == kStages) stage = 0;
        arrive_and_wait(&full[stage]);
        sums.add(boxes[stage], thread);
        arrive(&empty[stage]);
      }
      out[tile * kGroup + thread] = sums.total();
    }
  }
}

// ---- plain addresses, and waiting by parity as CUTLASS does ---------------------------------------

static __device__ __forceinline__ void wait(Mbarrier *at, unsigned int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(shared(at)), "r"(parity) : "memory");
}

// The number of a thread's role, the same register for a whole warp.
static __device__ __forceinline__ int role_of_warp() {
  int role;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(role) : "r"(threadIdx.x / kGroup));
  return role;
}

// Block of 384: a producer, and two consumers that take turns at the tiles of the CTA.
extern "C" __global__ void __launch_bounds__(3 * kGroup, 1)
    pingpong_sums(const float *in, float *out, int tiles, int steps) {
  __shared__ alignas(128) float chunks[kStages][kSize];
  __shared__ Mbarrier full[kStages], empty[kStages];
  init_both(full, empty, 1, kGroup);
  const int role = role_of_warp();
  if (role == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x != 0) return;
    unsigned int count = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll 1
      for (int step = 0; step < steps; step++, count++) {
        const unsigned int stage = count % kStages;
        wait(&empty[stage], count / kStages % 2 ^ 1);
        expect(&full[stage], sizeof(chunks[0]));
        const float *from = in + (static_cast<long long>(tile) * steps + step) * kSize;
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                shared(chunks[stage])), "l"(from), "n"(sizeof(chunks[0])), "r"(shared(&full[stage]))
            : "memory");
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 40;");
    const int thread = threadIdx.x % kGroup;
    unsigned int count = (role - 1) * steps;
    for (int tile = blockIdx.x + (role - 1) * gridDim.x; tile < tiles; tile += 2 * gridDim.x) {
      Sums sums;
      for (int step = 0; step < steps; step++, count++) {
        const unsigned int stage = count % kStages;
        wait(&full[stage], count / kStages % 2);
        sums.add(chunks[stage], thread);
        arrive(&empty[stage]);
      }
      count += steps;
      out[tile * kGroup + thread] = sums.total();
    }
  }
}
