// The gradients of attention in bf16 for heads of 192 elements on sm_90a.
#include "attention_hopper_backward.cuh"

SHARED_TILES(shared);

extern "C" {
ATTENTION_HOPPER_KEY_GRADIENTS(192, 64)
ATTENTION_HOPPER_QUERY_GRADIENTS(192, 64)
}
