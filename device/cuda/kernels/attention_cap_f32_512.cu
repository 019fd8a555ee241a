// Attention in fp32 for heads of up to 512 elements, with a cap on scores.
#define SOFTCAP
#include "attention_f32.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_F32(512)
}
