// nvcc 13 -O3 -arch=sm_80, printed by cuobjdump -sass: packed_halves_80.txt
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define K extern "C" __global__ void
#define T (blockIdx.x*blockDim.x+threadIdx.x)
K hfma(const __half* a, const __half* b, __half* c){ c[T]=__hfma(a[T],b[T],c[T]); }
K hmul(const __half* a, const __half* b, __half* c){ c[T]=a[T]*b[T]; }
K haxpy(const __half* a, __half* c){ c[T]=__hfma(a[T],__float2half(1.5f),c[T]); }
K hrelu(const __half* a, __half* c){ c[T]=__hmax(a[T],c[T])+__float2half(1.f); }
K bfma(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c){ c[T]=__hfma(a[T],b[T],c[T]); }
K hdot(const __half2* a, const __half2* b, __half* c){ __half2 p=__hmul2(a[T],b[T]); c[T]=__hadd(__low2half(p),__high2half(p)); } // 2+1
K hscale(const __half2* a, __half s, __half2* c){ c[T]=__hmul2(a[T],__half2half2(s)); } // 2
