// All gradients of attention in bf16 for heads of up to 96 elements.
#include "attention_gradients.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_GRADIENTS(gradients, 96, 64, 2, 16)
ATTENTION_GRADIENTS(gradients_small, 96, 64, 1, 16) // for GPUs with less shared memory
ATTENTION_ROUND(96)
}
