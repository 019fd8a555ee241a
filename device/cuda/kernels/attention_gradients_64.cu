// All gradients of attention in bf16 for heads of up to 64 elements. The kernel that clears marks
// is here too; heads of other sizes use the same one.
#include "attention_gradients.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_GRADIENTS(gradients, 64, 64, 2, 32)
ATTENTION_ROUND(64)

// attention_marks clears n marks, the counters by which blocks wait for each other
// (attention_gradients.cuh).
__global__ __launch_bounds__(256) void attention_marks(u32 *marks, int n) {
  int i = blockIdx_x * 256 + threadIdx_x;
  if (i < n) marks[i] = 0;
}
}
