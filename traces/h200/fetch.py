"""Write fetch.cu: loops of straight-line FFMA of several lengths, run by warps that start together or apart."""
sizes = [8, 16, 32, 48, 64, 96, 120]
out = ['#include <cstdio>\n#include <cuda_runtime.h>\n__constant__ float w[512];\n']
for kind in ("reg", "con"):
    for kb in sizes:
        n = kb * 1024 // 16
        body = []
        for i in range(n):
            r = i % 16
            if kind == "con":
                body.append(f'"ld.const.f32 t, [w+{(i * 7) % 225 * 4}]; fma.rn.f32 %{r}, %{16 + r % 4}, t, %{r};"')
            else:
                body.append(f'"fma.rn.f32 %{r}, %{16 + r % 4}, %{20 + i % 4}, %{r};"')
        regs = " ".join(f"float a{i} = threadIdx.x + {i};" for i in range(16))
        xs = " ".join(f"float x{i} = p[{i}];" for i in range(4)) + " ".join(f"float b{i} = p[{i}+4];" for i in range(4))
        total = "+".join(f"a{i}" for i in range(16))
        text = 'asm volatile("{ .reg .f32 t;"\n' + "\n".join(body) + '\n"}" : ' + ", ".join(f'"+f"(a{i})' for i in range(16)) + " : " + ", ".join([f'"f"(x{i})' for i in range(4)] + [f'"f"(b{i})' for i in range(4)]) + ");"
        out.append(f"""
__global__ void __launch_bounds__(1024) {kind}{kb}(const float *p, float *o, long long *t, int iterations, int apart) {{
  {regs} {xs}
  __syncthreads();
  long long start = clock64();
  long long wait = (long long)(threadIdx.x / 32) * apart;
  while (clock64() - start < wait) ;
  long long begin = clock64();
  #pragma unroll 1
  for (int i = 0; i < iterations; ++i) {{
{text}
  }}
  long long end = clock64();
  o[blockIdx.x * blockDim.x + threadIdx.x] = {total};
  if (threadIdx.x % 32 == 0) {{ t[2 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32)] = begin; t[2 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) + 1] = end; }}
}}
""")
rows = ",\n".join(f'{{"{k}", {s}, (void*){k}{s}}}' for k in ("reg", "con") for s in sizes)
out.append("""
struct K { const char *kind; int kb; void *f; } ks[] = {%s};
int main() {
  float *p, *o; long long *t; cudaMalloc(&p, 4096); cudaMalloc(&o, 1 << 22); cudaMalloc(&t, 1 << 20);
  cudaMemset(p, 0, 4096);
  static long long h[1 << 16];
  cudaDeviceProp d; cudaGetDeviceProperties(&d, 0); printf("{\\"device\\": \\"%%s\\"}\\n", d.name);
  int aparts[] = {0, 997, 3989};
  int warps[] = {1, 4, 8, 16, 32};
  for (auto &k : ks) for (int w : warps) for (int a : aparts) {
    if (w == 1 && a) continue;
    int n = k.kb * 64, it = 200000 / n + 4;
    void *args[] = {&p, &o, &t, &it, &a};
    for (int r = 0; r < 2; ++r) cudaLaunchKernel(k.f, dim3(132), dim3(32 * w), args, 0, 0);
    if (cudaDeviceSynchronize() != cudaSuccess) { printf("{\\"error\\": \\"%%s %%d\\"}\\n", k.kind, k.kb); return 1; }
    cudaMemcpy(h, t, 2 * w * 8, cudaMemcpyDeviceToHost);
    // time while all warps run: from the last begin to the first end, by the mean rate of each warp
    double rate = 0; long long b = h[0], e = h[1];
    for (int i = 0; i < w; ++i) { rate += double(n) * it / double(h[2*i+1] - h[2*i]); if (h[2*i] > b) b = h[2*i]; if (h[2*i+1] < e) e = h[2*i+1]; }
    printf("{\\"kind\\": \\"%%s\\", \\"kb\\": %%d, \\"warps\\": %%d, \\"apart\\": %%d, \\"ipc_sm\\": %%.4f, \\"cycles_per_instruction_subcore\\": %%.4f, \\"overlap\\": %%.3f}\\n", k.kind, k.kb, w, a, rate, 4.0 / rate * (w < 4 ? w / 4.0 : 1.0), double(e - b) / double(h[1] - h[0]));
  }
}
""" % rows)
open("fetch.cu", "w").write("".join(out))
