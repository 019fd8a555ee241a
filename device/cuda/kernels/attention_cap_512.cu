// Attention in bf16 for heads of up to 512 elements, with a cap on scores.
#define SOFTCAP
#include "attention_forward.cuh"
#include "attention_split.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_FORWARD(512, 1, 8, 32, 1, 2)
ATTENTION_SPLIT_GRADIENTS(512, 2)
}
