// The parts that LayerNorm and LayerNormBackward share. One block computes a row. It either holds
// the row in registers (dim ≤ 8192, or 4096 if chunks are single elements), or reads it several
// times.
#pragma once
#include "rmsnorm.cuh"

template <int N> DEV float sum_of(const float (&v)[N]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; i++) sum += v[i];
  return sum;
}

// sum_of_squares is Σ (v − mean)².
template <int N> DEV float sum_of_squares(const float (&v)[N], float mean) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; i++) sum += (v[i] - mean) * (v[i] - mean);
  return sum;
}
