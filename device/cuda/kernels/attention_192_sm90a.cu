// Attention in bf16 for heads of 192 elements on sm_90a.
#include "attention_hopper_forward.cuh"

SHARED_TILES(shared);

extern "C" {
ATTENTION_HOPPER_FORWARD(192, 64)
}
