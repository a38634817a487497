// Blocks of 256 threads add up what they copy ahead into shared memory, through the C++ library's pipeline.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/pipeline>

constexpr int kThreads = 256;
constexpr int kStages = 2;

extern "C" __global__ void __launch_bounds__(kThreads) pipelined_sums(const float4 *data, float *sums, int rounds) {
  __shared__ float4 stages[kStages][kThreads];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const auto block = cooperative_groups::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  const float4 *own = data + static_cast<size_t>(blockIdx.x) * rounds * kThreads;
  const cuda::aligned_size_t<16> bytes(sizeof(stages[0]));
  float sum = 0.0f;
  for (int round = 0, next = 0; round < rounds; ++round) {
    for (; next < rounds && next < round + kStages; ++next) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, stages[next % kStages], own + next * kThreads, bytes, pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    const float4 values = stages[round % kStages][threadIdx.x ^ 1];
    sum += values.x + values.y + values.z + values.w;
    pipeline.consumer_release();
  }
  sums[blockIdx.x * kThreads + threadIdx.x] = sum;
}
