extern "C" __global__ void shorts(unsigned* out, unsigned n) {
  unsigned t = threadIdx.x; volatile short a[16];
  for (int i = 0; i < 16; i++) a[i] = (short)(t * 40503u * (i + 1));
  for (unsigned k = 0; k < n; ++k) { short v = a[(t + k) & 15]; if (v < 0) out[t + k * 1024] = 1; a[(t * 3 + k) & 15] = v + k; }
}
extern "C" __global__ void mixed(unsigned* out, unsigned n) {
  unsigned t = threadIdx.x; union { volatile unsigned char b[16]; volatile unsigned w[4]; volatile short h[8]; } a;
  for (int i = 0; i < 4; i++) a.w[i] = t * 2654435761u * (i + 1);
  for (unsigned k = 0; k < n; ++k) { unsigned v = a.b[(t * 7 + k) & 15]; a.h[(t + k) & 7] = v * 37; if (a.w[(k+t) & 3] & 16) out[t + k * 1024] = v; }
}
