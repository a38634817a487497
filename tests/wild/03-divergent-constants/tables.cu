// Tables in constant memory, read at one to 32 different words of a warp.
// tables_ARCH.sass: cuobjdump -sass of nvcc -cubin -arch=sm_ARCH tables.cu, without hex words and padding.
__constant__ float words[256];
__constant__ double pairs[64];
#define TABLE(name, type, table, index) \
  extern "C" __global__ void name(type *out, int n) { \
    type sum = 0; \
    _Pragma("unroll 1") for (int k = 0; k < n; ++k) sum += table[index]; \
    out[threadIdx.x] = sum; \
  }
TABLE(one_word, float, words, (threadIdx.x >> 5) + (k & 7))
TABLE(two_words, float, words, ((threadIdx.x >> 4) & 1) + (k & 7))
TABLE(word_per_lane, float, words, (threadIdx.x & 31) + (k & 7))
TABLE(pair_per_lane, double, pairs, (threadIdx.x & 31) + (k & 7))
extern "C" __global__ void word_of_some_lanes(float *out, int n) {
  float sum = 0;
  _Pragma("unroll 1") for (int k = 0; k < n; ++k)
    if ((threadIdx.x & 31) < 4) sum += words[(threadIdx.x & 31) * 2 + (k & 7)];
  out[threadIdx.x] = sum;
}
