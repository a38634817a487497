// Names with blanks, commas and parentheses. Built with:
//   nvcc -std=c++17 --extended-lambda -arch=sm_80 -cubin names.cu -o a.cubin; cuobjdump -sass a.cubin
//   nvcc -std=c++17 --extended-lambda -rdc=true -arch=sm_90 -cubin names.cu -o b.cubin; nvdisasm -c b.cubin
// each plain, and through c++filt; hex words and padding cut off.
template <int N>
struct Box {
    float v[N];
    __device__ __noinline__ float operator()(int i) const { return v[i & (N - 1)] * v[(i + 1) & (N - 1)]; }
};

namespace {
__device__ __noinline__ float step(float x, int n) { return x * n + 1.0f; }

__global__ void hidden(float* p, int n) {
    for (int i = 0; i < n; i++) p[i] = step(p[i], n);
}
}  // namespace

template <class F>
__global__ void apply(F f, float* p, int n) { p[threadIdx.x] = f(p[threadIdx.x]); }

template <char C, class... Ts>
__global__ void pack(Ts*... ts) { ((ts[threadIdx.x] += C), ...); }

__global__ void boxed(Box<4> b, float* p) { p[threadIdx.x] = b(threadIdx.x); }

void host(float* p, int* q) {
    apply<<<1, 32>>>([=] __device__(float x) { return step(x, 3); }, p, 4);
    pack<'x', float, int><<<1, 32>>>(p, q);
    boxed<<<1, 32>>>(Box<4>(), p);
    hidden<<<1, 32>>>(p, 3);
}
