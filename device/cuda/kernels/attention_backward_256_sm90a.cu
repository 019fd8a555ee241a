// The gradients of attention in bf16 for heads of 256 elements on sm_90a.
#include "attention_hopper_backward.cuh"

SHARED_TILES(shared);

extern "C" {
ATTENTION_HOPPER_KEY_GRADIENTS(256, 64)
ATTENTION_HOPPER_QUERY_GRADIENTS(256, 32)
}
