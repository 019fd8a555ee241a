// CrossEntropy and CrossEntropyShard of logits with a cap; see crossentropy.cuh.
#include "crossentropy.cuh"

#define LIMIT (Capped{cap, 1.0f / cap})

extern "C" {
CROSS_ENTROPY(float, crossentropy_cap, _f32, LIMIT, Plain{}, float cap)
CROSS_ENTROPY(bf16, crossentropy_cap, _bf16, LIMIT, Plain{}, float cap)
}
