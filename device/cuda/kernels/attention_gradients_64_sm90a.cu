// All gradients of attention in bf16 for heads of 64 elements on sm_90a.
#include "attention_hopper_gradients.cuh"

SHARED_TILES(shared);

extern "C" {
ATTENTION_HOPPER_GRADIENTS(64)
}
