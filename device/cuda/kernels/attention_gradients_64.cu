// All gradients of attention in bf16 for heads of up to 64 elements, and the marks of
// all sizes.
#include "attention_gradients.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_GRADIENTS(gradients, 64, 64, 2, 32)
ATTENTION_ROUND(64)

// attention_marks clears n marks.
__global__ __launch_bounds__(256) void attention_marks(u32 *marks, int n) {
  int i = blockIdx_x * 256 + threadIdx_x;
  if (i < n) marks[i] = 0;
}
}
