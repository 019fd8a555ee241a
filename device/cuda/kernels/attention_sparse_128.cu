// Attention in bf16 for heads of up to 128 elements, to the keys that an indexer chose.
#define SPARSE
#include "attention_backward.cuh"
#include "attention_forward.cuh"

DYNAMIC_SHARED(shared);

extern "C" {
ATTENTION_FORWARD(128, 2, 4, 64, 2, 1)
ATTENTION_KEY_GRADIENTS(128, 8, 1, 64, 2, true)
ATTENTION_QUERY_GRADIENTS(128, 8, 64, 2, true)
}
