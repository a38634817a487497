// Loops in loops in loops, whose bounds, conditions and addresses hang on none, one or more of the counters.
// Each kernel takes (out, in, n, m, k); what is not the point is kept from being unrolled.

#define LOOP(i, from, to) _Pragma("unroll 1") for (int i = from; i < to; i++)

extern "C" {
__global__ void plain(float *out, const float *in, int n, int m, int k) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  LOOP(a, 0, n) LOOP(b, 0, m) {
    float part = 0;
    LOOP(c, 0, k) part += in[(a * m + b) * k + c + t] * in[c];
    sum = sum * part + b;
  }
  out[t] = sum;
}

__global__ void stores(float *out, const float *in, int n, int m, int k) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  LOOP(a, 0, n) LOOP(b, 0, m) LOOP(c, 0, k) out[((t * n + a) * m + b) * k + c] = c;
}

__global__ void triangle(float *out, const float *in, int n, int m, int k) {
  LOOP(a, 0, n) LOOP(b, 0, a) LOOP(c, 0, k) out[a * n + b + c] = threadIdx.x;
  LOOP(a, 0, n) LOOP(b, a, m) out[a * m + b] = 1;
}

__global__ void crossing(float *out, const float *in, int n, int m, int k) {
  LOOP(a, 0, n) {
    const int end = min(m, n + k - a);
    LOOP(b, 0, end) out[a * m + b] = 1;
  }
}

__global__ void diagonal(float *out, const float *in, int n, int m, int k) {
  LOOP(a, 0, n) LOOP(b, 0, m) {
    if (b > a + k) out[a * m + b] = 1;
    if (a + b == k) out[b] = 2;
  }
}

__global__ void modulo(float *out, const float *in, int n, int m, int k) {
  LOOP(a, 0, n) LOOP(b, 0, m) {
    if ((a + b) % 3 == 1) out[b] = 1;
    if ((4 * a + b) & 8) out[a] = 2;
    if (((a >> 2) + b) & 1) out[a + b] = 3;
  }
}

__global__ void strides(float *out, const float *in, int n, int m, int k) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  LOOP(a, 0, n) LOOP(b, 0, m) sum += in[b * t + a * k];  // the inner step differs by lanes
  LOOP(a, 0, n) LOOP(b, 0, m) sum += in[a * b + t];      // and here by iterations of the outer loop
  LOOP(a, 0, n) for (int b = t; b < m; b += 32) sum += in[b + a * m];
  out[t] = sum;
}

__global__ void shared_tile(float *out, const float *in, int n, int m, int k) {
  __shared__ float tile[128];
  float sum = 0;
  LOOP(a, 0, n) {
    LOOP(b, 0, m) {
      tile[threadIdx.x] = in[(a * m + b) * blockDim.x + threadIdx.x];
      __syncthreads();
      LOOP(c, 0, k) sum += tile[c & 127];
      __syncthreads();
    }
    sum = sum / (1.0f + tile[a & 127]);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void leaves(float *out, const float *in, int n, int m, int k) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  LOOP(a, 0, n) {
    LOOP(b, 0, m) {
      if (b == k + t) break;
      out[a * m + b] = 1;
    }
    if (a == 2 * k + t) return;
  }
}

__global__ void unknown(float *out, const float *in, int n, int m, int k) {
  LOOP(a, 0, n) {
    LOOP(b, 0, m) {
      if (in[a * m + b] > 0) out[b] = 1;
      LOOP(c, 0, k) if (in[c] > 0) out[c + b] = 2;
    }
    const int end = in[a];
    LOOP(b, 0, end) out[a * m + b] = 3;
    if (in[a] == 7) return;
  }
}
}
