// CrossEntropy and CrossEntropyShard with terms beside −log p; see crossentropy.cuh.
#include "crossentropy.cuh"

#define TERMS (Terms{target, column, z, vocabulary})
#define PARAMETERS float target, float column, float z, int vocabulary

extern "C" {
CROSS_ENTROPY(float, crossentropy_terms, _f32, Uncapped{}, TERMS, PARAMETERS)
CROSS_ENTROPY(bf16, crossentropy_terms, _bf16, Uncapped{}, TERMS, PARAMETERS)
}
