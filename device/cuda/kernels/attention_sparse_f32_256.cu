// Attention in fp32 for heads of up to 256 elements, to the keys that an indexer chose.
#define SPARSE
#include "attention_f32.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_F32(256)
}
