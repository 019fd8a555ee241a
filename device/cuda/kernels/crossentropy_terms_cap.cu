// CrossEntropy and CrossEntropyShard of logits with a cap, with terms beside −log p; see crossentropy.cuh.
#include "crossentropy.cuh"

#define LIMIT (Capped{cap, 1.0f / cap})
#define TERMS (Terms{target, column, z, vocabulary})
#define PARAMETERS float target, float column, float z, int vocabulary, float cap

extern "C" {
CROSS_ENTROPY(float, crossentropy_terms_cap, _f32, LIMIT, TERMS, PARAMETERS)
CROSS_ENTROPY(bf16, crossentropy_terms_cap, _bf16, LIMIT, TERMS, PARAMETERS)
}
