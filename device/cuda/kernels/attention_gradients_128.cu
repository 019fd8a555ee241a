// All gradients of attention in bf16 for heads of up to 128 elements.
#include "attention_gradients.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_GRADIENTS(gradients, 128, 64, 2, 32)
ATTENTION_GRADIENTS(gradients_small, 128, 32, 2, 16) // for GPUs with less shared memory
ATTENTION_ROUND(128)
}
