// CrossEntropy and CrossEntropyShard; see crossentropy.cuh.
#include "crossentropy.cuh"

extern "C" {
CROSS_ENTROPY(float, crossentropy, _f32, Uncapped{}, Plain{})
CROSS_ENTROPY(bf16, crossentropy, _bf16, Uncapped{}, Plain{})
}
