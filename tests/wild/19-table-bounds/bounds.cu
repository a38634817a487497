// Loops whose number of iterations is loaded from a table, in elements of several widths.
//   for a in 75 100; do nvcc -arch=sm_$a -cubin -o b.cubin bounds.cu && cuobjdump -sass b.cubin | grep -v NOP | sed -E 's:\s*/\* 0x[0-9a-f]+ \*/::; /^\s*$/d' > bounds.sm_$a.sass; done
#define KERNEL extern "C" __global__ void
#define BODY(count) { float sum = 0; _Pragma("unroll 1") for (int i = 0; i < count; i++) sum += x[i * 256 + threadIdx.x]; y[blockIdx.x * 256 + threadIdx.x] = sum; }

KERNEL words(const float* x, float* y, const int* counts) { int n = counts[blockIdx.x]; BODY(n) }
KERNEL wide(const float* x, float* y, const long long* counts) { long long n = counts[blockIdx.x]; float sum = 0; _Pragma("unroll 1") for (long long i = 0; i < n; i++) sum += x[i * 256 + threadIdx.x]; y[blockIdx.x * 256 + threadIdx.x] = sum; }
KERNEL bytes(const float* x, float* y, const unsigned char* counts) { int n = counts[blockIdx.x]; BODY(n) }
KERNEL floats(const float* x, float* y, const float* counts) { int n = (int)counts[blockIdx.x]; BODY(n) }
KERNEL rows(const float* x, float* y, const int* starts) { float sum = 0; _Pragma("unroll 1") for (int i = starts[blockIdx.x]; i < starts[blockIdx.x + 1]; i++) sum += x[i * 256 + threadIdx.x]; y[blockIdx.x * 256 + threadIdx.x] = sum; }
