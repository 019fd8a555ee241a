// The gradients of attention in bf16 for heads of 64 elements on sm_90a.
#include "attention_hopper_backward.cuh"

SHARED_TILES(shared);

extern "C" {
ATTENTION_HOPPER_KEY_GRADIENTS(64, 128)
ATTENTION_HOPPER_QUERY_GRADIENTS(64, 128)
}
