// A kernel with internal linkage: the compiler puts a hash of the file into its name.
namespace {
__global__ void hidden_scale(const float *in, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * 1.5f - 0.25f;
}
}  // namespace

void launch(const float *in, float *out, int n) { hidden_scale<<<n / 256, 256>>>(in, out, n); }
