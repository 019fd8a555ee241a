// The activations of GLU and Activate. f is
//
//	SiLU      x·σ(x)
//	GELU      ½x·(1 + tanh v) = x·σ(2v) with v = √(2/π)·(x + 0.044715x³)
//	ErfGELU   ½x·(1 + erf(x/√2)) = x·σ(l) with l the logit of the normal distribution
//
// so f(x) = x·σ(z), f'(x) = σ(z) + f(x)·σ(−z)·z', where z is x, 2v or l. Or it is
//
//	ReLU      max(0, x), whose slope at 0 is 0
#pragma once
#include "common.cuh"

// The comparisons are chosen such that a NaN stays a NaN.
struct ReLU {
  DEV float value(float x) { return __nvvm_fmax_nan_f(x, 0.0f); }
  DEV float gradient(float x, float d) { return x <= 0.0f ? 0.0f : d; }
};

struct SiLU {
  DEV float argument(float x) { return x; }
  DEV float slope(float) { return 1.0f; }
};

// square limits x² to 10⁴ (|x| = 100), so that it does not overflow. σ(z) is 0 or 1 in fp32 long
// before that, so the limit changes no result.
struct GELU {
  static constexpr float K = 1.5957691216057308f, CUBE = 0.044715f; // 2·√(2/π)
  DEV float square(float x) { return __builtin_fminf(x * x, 1e4f); }
  DEV float argument(float x) { return K * x * __builtin_fmaf(CUBE, square(x), 1.0f); }
  DEV float slope(float x) { return K * __builtin_fmaf(3.0f * CUBE, square(x), 1.0f); }
};

// ErfGELU's argument of σ is log Φ(x)/Φ(−x), with Φ the normal distribution. It is computed as
// x·p(x²), with a fitted polynomial p; see docs/decisions/2026-11-layer-norm.md.
struct ErfGELU {
  DEV float square(float x) { return __builtin_fminf(x * x, 30.0f); }
  // polynomial computes p(s) and its derivative d by Horner's rule.
  DEV void polynomial(float s, float &p, float &d) {
    constexpr float C[8] = {1.5957716703414917f,     0.07266046106815338f,   -5.9747755585704e-05f, -0.00011280125909252092f,
                            8.350795724254567e-06f, -3.0449308496827143e-07f, 5.2709117071003675e-09f, -2.779469363001219e-11f};
    p = C[7], d = 0.0f;
#pragma unroll
    for (int i = 6; i >= 0; i--) d = __builtin_fmaf(d, s, p), p = __builtin_fmaf(p, s, C[i]);
  }
  DEV float argument(float x) {
    float p, d;
    polynomial(square(x), p, d);
    return x * p;
  }
  DEV float slope(float x) {
    float p, d, s = square(x);
    polynomial(s, p, d);
    return __builtin_fmaf(2.0f * s, d, p);
  }
};
