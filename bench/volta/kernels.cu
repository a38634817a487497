// Kernels of benchmark suites (CUDA samples, Rodinia, Parboil), written anew, for docs/volta.md: what they compute,
// by how many threads and through how much shared memory is theirs. Compiled by NVRTC 12.4 for sm_70, as it comes.
typedef unsigned int uint;
typedef unsigned char uchar;
// Walsh-Hadamard, in shared memory: 2048 values a CTA, radix 4, one radix-2 stage at the end
extern "C" __global__ void walsh_shared(float* out, const float* in, int log2n) {
    extern __shared__ float s[];
    const int n = 1 << log2n, first = blockIdx.x << log2n;
    for (int at = threadIdx.x; at < n; at += blockDim.x) s[at] = in[first + at];
    const int at = threadIdx.x;
    for (int stride = n >> 2; stride > 0; stride >>= 2) {
        const int low = at & (stride - 1);
        const int i0 = ((at - low) << 2) + low, i1 = i0 + stride, i2 = i1 + stride, i3 = i2 + stride;
        __syncthreads();
        const float d0 = s[i0], d1 = s[i1], d2 = s[i2], d3 = s[i3];
        const float a = d0 + d2, b = d0 - d2, c = d1 + d3, d = d1 - d3;
        s[i0] = a + c; s[i1] = a - c; s[i2] = b + d; s[i3] = b - d;
    }
    if (log2n & 1) {
        __syncthreads();
        for (int p = threadIdx.x; p < n / 2; p += blockDim.x) {
            const int i0 = p << 1, i1 = i0 + 1;
            const float d0 = s[i0], d1 = s[i1];
            s[i0] = d0 + d1; s[i1] = d0 - d1;
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < n; at += blockDim.x) out[first + at] = s[at];
}
// one radix-4 stage in global memory
extern "C" __global__ void walsh_global(float* out, const float* in, int stride) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, n = blockDim.x * gridDim.x * 4;
    const float* src = in + blockIdx.y * n;
    float* dst = out + blockIdx.y * n;
    const int low = at & (stride - 1);
    const int i0 = ((at - low) << 2) + low, i1 = i0 + stride, i2 = i1 + stride, i3 = i2 + stride;
    const float d0 = src[i0], d1 = src[i1], d2 = src[i2], d3 = src[i3];
    const float a = d0 + d2, b = d0 - d2, c = d1 + d3, d = d1 - d3;
    dst[i0] = a + c; dst[i1] = a - c; dst[i2] = b + d; dst[i3] = b - d;
}
// histogram of 64 bins: byte counters of each thread in shared memory
__device__ void count_byte(uchar* mine, uint bin) { mine[bin * 64]++; }
__device__ void count_word(uchar* mine, uint word) {
    count_byte(mine, (word >> 2) & 0x3F); count_byte(mine, (word >> 10) & 0x3F);
    count_byte(mine, (word >> 18) & 0x3F); count_byte(mine, (word >> 26) & 0x3F);
}
extern "C" __global__ void histogram64(uint* partial, const uint4* data, uint n) {
    __shared__ uchar counts[64 * 64];
    const uint tid = threadIdx.x;
    const uint place = (tid & ~63u) | ((tid & 15) << 2) | ((tid & 48) >> 4);
    uchar* mine = counts + place;
    uint* words = (uint*)counts;
#pragma unroll
    for (uint i = 0; i < 16; i++) words[tid + i * 64] = 0;
    __syncthreads();
    for (uint at = blockIdx.x * blockDim.x + tid; at < n; at += blockDim.x * gridDim.x) {
        const uint4 d = data[at];
        count_word(mine, d.x); count_word(mine, d.y); count_word(mine, d.z); count_word(mine, d.w);
    }
    __syncthreads();
    if (tid < 64) {
        uchar* bins = counts + tid * 64;
        uint sum = 0, at = 4 * (tid & 15);
#pragma unroll
        for (uint i = 0; i < 16; i++) {
            sum += bins[at] + bins[at + 1] + bins[at + 2] + bins[at + 3];
            at = (at + 4) & 63;
        }
        partial[blockIdx.x * 64 + tid] = sum;
    }
}
// Niederreiter's quasi-random numbers, three dimensions
__constant__ uint directions[31][3];
extern "C" __global__ void quasirandom(float* out, uint seed, uint n) {
    uint* dirs = &directions[0][threadIdx.y];
    const uint tid = blockDim.x * blockIdx.x + threadIdx.x, all = blockDim.x * gridDim.x;
    for (uint at = tid; at < n; at += all) {
        uint result = 0, data = seed + at;
        for (int bit = 0; bit < 31; bit++, data >>= 1)
            if (data & 1) result ^= dirs[bit * 3];
        out[threadIdx.y * n + at] = (float)(result + 1) * (1.0f / 0x80000001u);
    }
}
// inverse of the normal distribution (Moro), of evenly spread places
__device__ float inverse_normal(uint x) {
    const float a1 = 2.50662823884f, a2 = -18.61500062529f, a3 = 41.39119773534f, a4 = -25.44106049637f;
    const float b1 = -8.4735109309f, b2 = 23.08336743743f, b3 = -21.06224101826f, b4 = 3.13082909833f;
    const float c1 = 0.337475482272615f, c2 = 0.976169019091719f, c3 = 0.160797971491821f;
    const float c4 = 2.76438810333863E-02f, c5 = 3.8405729373609E-03f, c6 = 3.951896511919E-04f;
    const float c7 = 3.21767881768E-05f, c8 = 2.888167364E-07f, c9 = 3.960315187E-07f;
    bool negate = false;
    if (x >= 0x80000000u) { x = 0xffffffffu - x; negate = true; }
    const float scale = 1.0f / (float)0xffffffffu, half = 0.5f / (float)0xffffffffu;
    const float p1 = x * scale + half, p2 = p1 - 0.5f;
    float z;
    if (p2 > -0.42f) {
        z = p2 * p2;
        z = p2 * (((a4 * z + a3) * z + a2) * z + a1) / ((((b4 * z + b3) * z + b2) * z + b1) * z + 1.0f);
    } else {
        z = __logf(-__logf(p1));
        z = -(c1 + z * (c2 + z * (c3 + z * (c4 + z * (c5 + z * (c6 + z * (c7 + z * (c8 + z * c9))))))));
    }
    return negate ? -z : z;
}
extern "C" __global__ void inverse_cnd(float* out, const uint* in, uint n) {
    const uint step = 0xffffffffu / (n + 1);
    for (uint at = blockDim.x * blockIdx.x + threadIdx.x; at < n; at += blockDim.x * gridDim.x) {
        if (in) out[at] = inverse_normal(in[at]);
        else out[at] = inverse_normal((at + 1) * step);
    }
}
// American options by a binomial tree of 2048 steps, 16 values a thread of 128
struct Option { float S, X, VDt, Up, Down; };
__constant__ Option options[1024];
__device__ float values[1024];
__device__ float at_end(float S, float X, float vdt, int i) {
    const float d = S * __expf(vdt * (2.0f * i - 2048)) - X;
    return d > 0.0f ? d : 0.0f;
}
extern "C" __global__ void binomial() {
    __shared__ float passed[129];
    const int tid = threadIdx.x;
    const Option o = options[blockIdx.x];
    float call[17];
#pragma unroll
    for (int i = 0; i < 16; ++i) call[i] = at_end(o.S, o.X, o.VDt, tid * 16 + i);
    if (tid == 0) passed[128] = at_end(o.S, o.X, o.VDt, 2048);
    const int last = max(0, tid * 16 - 1);
#pragma unroll 16
    for (int i = 2048; i > 0; --i) {
        passed[tid] = call[0];
        __syncthreads();
        call[16] = passed[tid + 1];
        __syncthreads();
        if (i > last) {
#pragma unroll
            for (int j = 0; j < 16; ++j) call[j] = o.Up * call[j + 1] + o.Down * call[j];
        }
    }
    if (tid == 0) values[blockIdx.x] = call[0];
}
// FP32 product, B transposed: 128 x 16 outputs a CTA of 128, 16 a thread
extern "C" __global__ void sgemm_nt(const float* A, int lda, const float* B, int ldb, float* C, int ldc, int k, float alpha, float beta) {
    float c[16];
#pragma unroll
    for (int i = 0; i < 16; i++) c[i] = 0.0f;
    const int mid = threadIdx.y * blockDim.x + threadIdx.x;
    const int m = blockIdx.x * 128 + mid, n = blockIdx.y * 16 + threadIdx.x;
    __shared__ float b[8][16];
    for (int i = 0; i < k; i += 8) {
        b[threadIdx.y][threadIdx.x] = B[n + (i + threadIdx.y) * ldb];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float a = A[m + (i + j) * lda];
#pragma unroll
            for (int l = 0; l < 16; l++) c[l] += a * b[j][l];
        }
        __syncthreads();
    }
    const int t = ldc * blockIdx.y * 16 + m;
#pragma unroll
    for (int i = 0; i < 16; i++) C[t + i * ldc] = C[t + i * ldc] * beta + alpha * c[i];
}
// MRI-Q: sums of waves over 1024 samples in constant memory
struct Wave { float x, y, z, m; };
__constant__ Wave waves[1024];
extern "C" __global__ void mri_q(int n_k, int first, const float* x, const float* y, const float* z, float* re, float* im) {
    const int at = blockIdx.x * 256 + threadIdx.x;
    const float px = x[at], py = y[at], pz = z[at];
    float qr = re[at], qi = im[at];
    int k = 0;
    if (n_k % 2) {
        const float a = 6.2831853071795864769252867665590058f * (waves[0].x * px + waves[0].y * py + waves[0].z * pz);
        qr += waves[0].m * __cosf(a); qi += waves[0].m * __sinf(a); k++; first++;
    }
    for (; k < 1024 && first < n_k; k += 2, first += 2) {
        const float a = 6.2831853071795864769252867665590058f * (waves[k].x * px + waves[k].y * py + waves[k].z * pz);
        qr += waves[k].m * __cosf(a); qi += waves[k].m * __sinf(a);
        const float b = 6.2831853071795864769252867665590058f * (waves[k+1].x * px + waves[k+1].y * py + waves[k+1].z * pz);
        qr += waves[k+1].m * __cosf(b); qi += waves[k+1].m * __sinf(b);
    }
    re[at] = qr; im[at] = qi;
}
// backpropagation: partial sums of a layer of 65536 inputs and 16 hidden units
extern "C" __global__ void layer_forward(const float* input, float* hidden, float* weights, float* partial, int in, int hid) {
    const int by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    const int at = (hid + 1) * 16 * by + (hid + 1) * ty + tx + 1 + (hid + 1), from = 16 * by + ty + 1;
    __shared__ float node[16];
    __shared__ float w[16][16];
    if (tx == 0) node[ty] = input[from];
    __syncthreads();
    w[ty][tx] = weights[at];
    __syncthreads();
    w[ty][tx] = w[ty][tx] * node[ty];
    __syncthreads();
    for (int i = 1; i <= __log2f(16); i++) {
        const int power = __powf(2, i);
        if (ty % power == 0) w[ty][tx] = w[ty][tx] + w[ty + power / 2][tx];
        __syncthreads();
    }
    weights[at] = w[ty][tx];
    __syncthreads();
    if (tx == 0) partial[by * hid + ty] = w[tx][ty];
}
extern "C" __global__ void adjust_weights(const float* delta, int hid, const float* ly, int in, float* w, float* old) {
    const int by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    const int at = (hid + 1) * 16 * by + (hid + 1) * ty + tx + 1 + (hid + 1);
    const int y = 16 * by + ty + 1, x = tx + 1;
    w[at] += (0.3f * delta[x] * ly[y]) + (0.3f * old[at]);
    old[at] = (0.3f * delta[x] * ly[y]) + (0.3f * old[at]);
    __syncthreads();
    if (ty == 0 && by == 0) {
        w[x] += (0.3f * delta[x]) + (0.3f * old[x]);
        old[x] = (0.3f * delta[x]) + (0.3f * old[x]);
    }
}
// hotspot: two steps of a stencil over tiles of 16 x 16 with a border
#define INSIDE(x, lo, hi) ((x) >= (lo) && (x) <= (hi))
extern "C" __global__ void hotspot(int iterations, const float* power, const float* src, float* dst, int cols, int rows, int bc, int br,
                                   float cap, float rx, float ry, float rz, float step, float elapsed) {
    __shared__ float t[16][16], p[16][16], nt[16][16];
    const float ambient = 80.0f;
    const int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    const float step_cap = step / cap, rx1 = 1 / rx, ry1 = 1 / ry, rz1 = 1 / rz;
    const int small_r = 16 - iterations * 2, small_c = 16 - iterations * 2;
    const int y0 = small_r * by - br, x0 = small_c * bx - bc, y1 = y0 + 15, x1 = x0 + 15;
    const int y = y0 + ty, x = x0 + tx, at = cols * y + x;
    if (INSIDE(y, 0, rows - 1) && INSIDE(x, 0, cols - 1)) { t[ty][tx] = src[at]; p[ty][tx] = power[at]; }
    __syncthreads();
    const int vy0 = y0 < 0 ? -y0 : 0, vy1 = y1 > rows - 1 ? 15 - (y1 - rows + 1) : 15;
    const int vx0 = x0 < 0 ? -x0 : 0, vx1 = x1 > cols - 1 ? 15 - (x1 - cols + 1) : 15;
    int N = ty - 1, S = ty + 1, W = tx - 1, E = tx + 1;
    N = N < vy0 ? vy0 : N; S = S > vy1 ? vy1 : S; W = W < vx0 ? vx0 : W; E = E > vx1 ? vx1 : E;
    bool computed;
    for (int i = 0; i < iterations; i++) {
        computed = false;
        if (INSIDE(tx, i + 1, 16 - i - 2) && INSIDE(ty, i + 1, 16 - i - 2) && INSIDE(tx, vx0, vx1) && INSIDE(ty, vy0, vy1)) {
            computed = true;
            nt[ty][tx] = t[ty][tx] + step_cap * (p[ty][tx] + (t[S][tx] + t[N][tx] - 2.0 * t[ty][tx]) * ry1 +
                         (t[ty][E] + t[ty][W] - 2.0 * t[ty][tx]) * rx1 + (ambient - t[ty][tx]) * rz1);
        }
        __syncthreads();
        if (i == iterations - 1) break;
        if (computed) t[ty][tx] = nt[ty][tx];
        __syncthreads();
    }
    if (computed) dst[at] = nt[ty][tx];
}
// DCT of 8 x 8 blocks, 32 x 16 pixels a CTA, two passes through shared memory
__device__ void dct_row(float* v, int s) {
    const float r = 0.35355339f, a = 1.38703990f, b = 1.30656296f, c = 1.17587560f, d = 0.78569496f, e = 0.54119610f, f = 0.27589938f;
    const float x0 = v[0], x1 = v[s], x2 = v[2*s], x3 = v[3*s], x4 = v[4*s], x5 = v[5*s], x6 = v[6*s], x7 = v[7*s];
    const float p07 = x0 + x7, p16 = x1 + x6, p25 = x2 + x5, p34 = x3 + x4;
    const float m07 = x0 - x7, m61 = x6 - x1, m25 = x2 - x5, m43 = x4 - x3;
    const float pp = p07 + p34, pm = p16 + p25, mp = p07 - p34, mm = p16 - p25;
    v[0] = r * (pp + pm); v[2*s] = r * (b * mp + e * mm); v[4*s] = r * (pp - pm); v[6*s] = r * (e * mp - b * mm);
    v[s] = r * (a * m07 - c * m61 + d * m25 - f * m43); v[3*s] = r * (c * m07 + f * m61 - a * m25 + d * m43);
    v[5*s] = r * (d * m07 + a * m61 + f * m25 - c * m43); v[7*s] = r * (f * m07 + d * m61 + c * m25 + a * m43);
}
extern "C" __global__ void dct_fast(float* img, int stride) {
    __shared__ float block[16 * 33];
    const int ox = threadIdx.y * 8 + threadIdx.x, oy = threadIdx.z * 8;
    img += (blockIdx.y * 16 + oy) * stride + blockIdx.x * 32 + ox;
    float* mine = block + oy * 33 + ox;
#pragma unroll
    for (int i = 0; i < 8; i++) mine[i * 33] = img[i * stride];
    dct_row(block + (oy + threadIdx.x) * 33 + ox - threadIdx.x, 1);
    dct_row(mine, 33);
#pragma unroll
    for (int i = 0; i < 8; i++) img[i * stride] = mine[i * 33];
}
// merge sort of 1024 keys with values in shared memory
__device__ uint place_of(uint key, const uint* data, uint n, uint stride, bool inclusive) {
    if (n == 0) return 0;
    uint at = 0;
    for (; stride > 0; stride >>= 1) {
        const uint next = min(at + stride, n);
        if (inclusive ? data[next - 1] <= key : data[next - 1] < key) at = next;
    }
    return at;
}
extern "C" __global__ void merge_sort_shared(uint* out_keys, uint* out_values, const uint* in_keys, const uint* in_values, uint n) {
    __shared__ uint keys[1024];
    __shared__ uint vals[1024];
    in_keys += blockIdx.x * 1024 + threadIdx.x; in_values += blockIdx.x * 1024 + threadIdx.x;
    out_keys += blockIdx.x * 1024 + threadIdx.x; out_values += blockIdx.x * 1024 + threadIdx.x;
    keys[threadIdx.x] = in_keys[0]; vals[threadIdx.x] = in_values[0];
    keys[threadIdx.x + 512] = in_keys[512]; vals[threadIdx.x + 512] = in_values[512];
    for (uint stride = 1; stride < n; stride <<= 1) {
        const uint low = threadIdx.x & (stride - 1);
        uint* key = keys + 2 * (threadIdx.x - low);
        uint* val = vals + 2 * (threadIdx.x - low);
        __syncthreads();
        const uint ka = key[low], va = val[low], kb = key[low + stride], vb = val[low + stride];
        const uint pa = place_of(ka, key + stride, stride, stride, false) + low;
        const uint pb = place_of(kb, key, stride, stride, true) + low;
        __syncthreads();
        key[pa] = ka; val[pa] = va; key[pb] = kb; val[pb] = vb;
    }
    __syncthreads();
    out_keys[0] = keys[threadIdx.x]; out_values[0] = vals[threadIdx.x];
    out_keys[512] = keys[threadIdx.x + 512]; out_values[512] = vals[threadIdx.x + 512];
}
// Sobol's numbers: one dimension a row of CTAs
extern "C" __global__ void sobol(uint n_vectors, uint n_dims, const uint* directions, float* out) {
    __shared__ uint v[32];
    directions += 32 * blockIdx.y;
    out += n_vectors * blockIdx.y;
    if (threadIdx.x < 32) v[threadIdx.x] = directions[threadIdx.x];
    __syncthreads();
    int i0 = threadIdx.x + blockIdx.x * blockDim.x;
    const int stride = gridDim.x * blockDim.x;
    uint g = i0 ^ (i0 >> 1), x = 0;
    for (uint k = 0; k < __ffs(stride) - 1; k++) {
        const uint mask = -(g & 1);
        x ^= mask & v[k];
        g >>= 1;
    }
    if (i0 < n_vectors) out[i0] = (float)x * 2.3283064365386962890625e-10f;
    const uint low = v[__ffs(stride) - 2];
    for (uint i = i0 + stride; i < n_vectors; i += stride) {
        x ^= low ^ v[__ffs(~((i - stride) | (stride - 1))) - 1];
        out[i] = (float)x * 2.3283064365386962890625e-10f;
    }
}
