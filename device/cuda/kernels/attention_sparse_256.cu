// Attention in bf16 for heads of up to 256 elements, to the keys that an indexer chose.
#define SPARSE
#include "attention_backward.cuh"
#include "attention_forward.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_FORWARD(256, 1, 4, 64, 4, 1)
ATTENTION_KEY_GRADIENTS(256, 4, 2, 32, 1, false)
ATTENTION_QUERY_GRADIENTS(256, 4, 32, 1, false)
}
