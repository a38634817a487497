// A store and a fence in each iteration, by scope; the last two load one word again and again instead.
// fences_ARCH.sass: cuobjdump -sass of nvcc -cubin -arch=sm_ARCH fences.cu, without hex words and padding.
#define STORED(name, fence) \
  extern "C" __global__ void name(volatile int *p, int n) { \
    _Pragma("unroll 1") for (int k = 0; k < n; ++k) { p[threadIdx.x] = k; fence; } \
  }
#define LOADED(name, fence) \
  extern "C" __global__ void name(const int *p, int n, int *out) { \
    int sum = 0; \
    _Pragma("unroll 1") for (int k = 0; k < n; ++k) { sum += p[threadIdx.x]; fence; } \
    out[threadIdx.x] = sum; \
  }
STORED(no_fence, )
STORED(block_fence, __threadfence_block())
STORED(gpu_fence, __threadfence())
STORED(system_fence, __threadfence_system())
STORED(release_fence, asm volatile("fence.acq_rel.gpu;" ::: "memory"))
LOADED(load_block_fence, __threadfence_block())
LOADED(load_gpu_fence, __threadfence())
LOADED(load_release_fence, asm volatile("fence.acq_rel.gpu;" ::: "memory"))
