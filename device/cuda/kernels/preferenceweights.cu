// PreferenceWeights overwrites weights (T) f32. Pair p = blockIdx.x has the chosen document from
// cu[2p] to cu[2p+1] and the rejected one from there to cu[2p+2]. reference (pairs, 2) f32 has
// their log probabilities in the reference model. kind is op.PreferenceKind.
//
// If reference has a NaN for the chosen document, both documents are the same, and the slopes are
// 0.
//
// A document's losses are summed in double: each thread sums every THREADS-th, then the threads'
// sums are added in halves. So the sum does not depend on the rest of the batch. The kernel moves
// 12 bytes for each token.
#include "common.cuh"

static constexpr int THREADS = 256;
static constexpr int IGNORE = -100;

enum { SIGMOID = 1, HINGE = 2, IPO = 3 };

// document returns to every thread the sum of the losses from … to, and sets count to the number of
// its targets.
DEV double document(const float *losses, const int *targets, int from, int to, int &count, double *sums, int *counts) {
  double sum = 0.0;
  int n = 0;
#pragma clang loop unroll(disable)
  for (int t = from + threadIdx_x; t < to; t += THREADS)
    if (targets[t] != IGNORE) sum += (double)losses[t], n++;
  sums[threadIdx_x] = sum, counts[threadIdx_x] = n;
#pragma clang loop unroll(disable)
  for (int half = THREADS / 2; half > 0; half /= 2) {
    sync_threads();
    if (threadIdx_x < half) {
      sums[threadIdx_x] += sums[threadIdx_x + half];
      counts[threadIdx_x] += counts[threadIdx_x + half];
    }
  }
  sync_threads();
  sum = sums[0], count = counts[0];
  sync_threads(); // before the next document is summed
  return sum;
}

extern "C" __global__ __launch_bounds__(THREADS) void preference_weights(float *weights, const float *losses, const int *targets,
                                                                         const int *cu, const float *reference, int kind,
                                                                         float beta, float smoothing, float likelihood) {
  __shared__ double sums[THREADS];
  __shared__ int counts[THREADS];
  int from = cu[2 * blockIdx_x], middle = cu[2 * blockIdx_x + 1], to = cu[2 * blockIdx_x + 2], chosen, rejected;
  double c = document(losses, targets, from, middle, chosen, sums, counts);
  double r = document(losses, targets, middle, to, rejected, sums, counts);
  c = (double)(float)-c - (double)reference[2 * blockIdx_x];
  r = (double)(float)-r - (double)reference[2 * blockIdx_x + 1];
  float by_c = 1.0f, by_r = 1.0f, slope;
  if (kind == IPO) {
    by_c = 1.0f / (float)max_i(chosen, 1), by_r = 1.0f / (float)max_i(rejected, 1);
    slope = 2.0f * ((float)(c * (double)by_c - r * (double)by_r) - 0.5f / beta);
  } else {
    float x = beta * (float)(c - r), up, down;
    sigmoids(x, up, down);
    slope = kind == HINGE ? (x >= 1.0f ? 0.0f : -beta) : beta * (smoothing * up - (1.0f - smoothing) * down);
    if (x != x) slope = x; // a NaN stays one
  }
  float same = reference[2 * blockIdx_x];
  if (same != same) slope = 0.0f; // op.SameDocuments
  by_c = likelihood - slope * by_c, by_r = slope * by_r;
#pragma clang loop unroll(disable)
  for (int t = from + threadIdx_x; t < to; t += THREADS) weights[t] = t < middle ? by_c : by_r;
}
