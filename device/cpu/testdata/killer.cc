// Writes killer.json: choices of std::nth_element of the GNU C++ library, which torch.topk calls, for scores that make
// every division of it bad, so that it ends with a heap. The form is that of topk.py.
//
//     g++ -O1 killer.cc -o killer && ./killer >killer.json
//
// The scores are made while it runs (M. D. McIlroy, A Killer Adversary for Quicksort, 1999): a score is fixed only when
// a comparison needs it. Scores that are never fixed are then 0 or 0.25.
#include <algorithm>
#include <cstdio>
#include <vector>

int main() {
  const char *before = "[";
  for (auto [n, k] : {std::pair{48, 30}, {64, 50}, {96, 60}, {128, 100}, {200, 150}}) {
    constexpr int FREE = 1 << 30;
    std::vector<int> rank(n, FREE), keys(n);
    int fixed = 0, candidate = -1;
    auto reset = [&] {
      for (int i = 0; i < n; i++) keys[i] = i;
    };
    reset();
    std::nth_element(keys.begin(), keys.begin() + k - 1, keys.end(), [&](int x, int y) {
      if (rank[x] == FREE && rank[y] == FREE) rank[x == candidate ? x : y] = fixed++;
      if (rank[x] == FREE) candidate = x;
      else if (rank[y] == FREE) candidate = y;
      return rank[x] < rank[y];
    });
    std::vector<double> scores(n);
    unsigned random = 7;
    for (int i = 0; i < n; i++) {
      random = random * 1664525 + 1013904223;
      scores[i] = rank[i] < k / 2 ? 100 - rank[i] : (random >> 20) % 2 * 0.25;
    }
    reset();
    std::nth_element(keys.begin(), keys.begin() + k - 1, keys.end(), [&](int x, int y) { return scores[x] > scores[y]; });
    std::sort(keys.begin(), keys.begin() + k);
    std::printf("%s{\"k\":%d,\"scores\":[", before, k);
    for (int i = 0; i < n; i++) std::printf("%s%g", i ? "," : "", scores[i]);
    std::printf("],\"chosen\":[");
    for (int i = 0; i < k; i++) std::printf("%s%d", i ? "," : "", keys[i]);
    std::printf("]}");
    before = ",";
  }
  std::printf("]\n");
}
