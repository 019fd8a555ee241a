// The gradients of attention in bf16 for heads of 128 elements on sm_90a.
#include "attention_hopper_backward.cuh"

SHARED_TILES(shared);

extern "C" {
ATTENTION_HOPPER_KEY_GRADIENTS(128, 128)
ATTENTION_HOPPER_QUERY_GRADIENTS(128, 128)
}
