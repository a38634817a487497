// For tests/models/test_volta.py; compiled as kernels.cu is.
// Layer norm, one row a CTA of 32 x 4 threads: Welford's mean and variance by vectors of four, then the row once more.
struct Stats { float mean, m2, count; };
__device__ Stats one_more(float v, Stats s) {
    const float d = v - s.mean, n = s.count + 1.0f, mean = s.mean + d * (1.0f / n);
    return {mean, s.m2 + d * (v - mean), n};
}
__device__ Stats together(Stats b, Stats a) {
    const float d = b.mean - a.mean, n = a.count + b.count;
    if (n > 0.0f) {
        const float c = 1.0f / n, na = a.count * c, nb = b.count * c;
        return {na * a.mean + nb * b.mean, a.m2 + b.m2 + d * d * a.count * nb, n};
    }
    return {0.0f, 0.0f, n};
}
extern "C" __global__ void layer_norm(int n, float eps, const float* __restrict__ x, const float* gamma, const float* beta, float* mean, float* rstd, float* y) {
    extern __shared__ float buf[];
    const long long row = blockIdx.x;
    const float4* in = (const float4*)(x + row * n);
    const int threads = blockDim.x * blockDim.y, me = threadIdx.y * blockDim.x + threadIdx.x, vectors = n / 4;
    Stats s = {0.0f, 0.0f, 0.0f};
    for (int i = me; i < vectors; i += threads) {
        const float4 v = in[i];
        s = one_more(v.x, s); s = one_more(v.y, s); s = one_more(v.z, s); s = one_more(v.w, s);
    }
    for (int off = 16; off > 0; off >>= 1) {
        const Stats b = {__shfl_down_sync(~0u, s.mean, off), __shfl_down_sync(~0u, s.m2, off), __shfl_down_sync(~0u, s.count, off)};
        s = together(s, b);
    }
    float* counts = buf + blockDim.y;
    for (int off = blockDim.y / 2; off > 0; off /= 2) {
        if (threadIdx.x == 0 && threadIdx.y >= off && threadIdx.y < 2 * off) {
            const int w = threadIdx.y - off;
            buf[2 * w] = s.mean; buf[2 * w + 1] = s.m2; counts[w] = s.count;
        }
        __syncthreads();
        if (threadIdx.x == 0 && threadIdx.y < off) {
            const Stats b = {buf[2 * threadIdx.y], buf[2 * threadIdx.y + 1], counts[threadIdx.y]};
            s = together(s, b);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0 && threadIdx.y == 0) { buf[0] = s.mean; buf[1] = s.m2 / n; }
    __syncthreads();
    const float m = buf[0], r = rsqrtf(buf[1] + eps);
    const float4* g4 = (const float4*)gamma; const float4* b4 = (const float4*)beta;
    float4* out = (float4*)(y + row * n);
    for (int i = me; i < vectors; i += threads) {
        const float4 v = in[i]; float4 o;
        if (gamma && beta) {
            const float4 g = g4[i], b = b4[i];
            o = {g.x * (r * (v.x - m)) + b.x, g.y * (r * (v.y - m)) + b.y, g.z * (r * (v.z - m)) + b.z, g.w * (r * (v.w - m)) + b.w};
        } else o = {r * (v.x - m), r * (v.y - m), r * (v.z - m), r * (v.w - m)};
        out[i] = o;
    }
    if (me == 0) { mean[row] = m; rstd[row] = r; }
}
