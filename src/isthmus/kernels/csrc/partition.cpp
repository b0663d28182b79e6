// Linear deterministic greedy (Stanton & Kliot 2012) over one chunk of a stream of rows. Its twin is partition/ldg.py.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common.h"

namespace {

constexpr int64_t kScale = int64_t(1) << 20;  // room is an integer share of the capacity: both twins round alike

// Share of a part's capacity that is left once a node has joined: of the loads it adds to, the scarcest decides.
int64_t room(const int64_t* load, const int64_t* weight, const int64_t* capacity, int64_t constraints) {
  int64_t least = kScale;
  for (int64_t c = 0; c < constraints; ++c) {
    if (weight[c] > 0) least = std::min(least, (capacity[c] - load[c] - weight[c]) * kScale / capacity[c]);
  }
  return least;
}

}  // namespace

// Places the rows `order[0..rows)` of a chunk whose first node is `first`. indptr [rows+1], weights [rows, constraints]
// and indices belong to the chunk; load [parts, constraints] and part [N] (-1: not placed yet) are updated.
ISTHMUS_API void isthmus_ldg(int64_t first, int64_t rows, const int64_t* order, const int64_t* indptr,
                             const int32_t* indices, int64_t parts, int64_t constraints, const int64_t* weights,
                             const int64_t* capacity, int64_t* load, int32_t* part) {
  std::vector<int64_t> count(parts, 0);
  std::vector<int32_t> seen;
  for (int64_t k = 0; k < rows; ++k) {
    const int64_t row = order[k];
    const int64_t* weight = weights + row * constraints;
    for (int64_t e = indptr[row] - indptr[0]; e < indptr[row + 1] - indptr[0]; ++e) {
      const int32_t p = part[indices[e]];
      if (p >= 0 && count[p]++ == 0) seen.push_back(p);
    }
    int64_t best = -1, best_score = 0, best_room = 0;
    for (const int32_t p : seen) {
      const int64_t space = room(load + p * constraints, weight, capacity, constraints), score = count[p] * space;
      if (space <= 0) continue;
      const bool wins_tie = score == best_score && (space > best_room || (space == best_room && p < best));
      if (best < 0 || score > best_score || wins_tie) best = p, best_score = score, best_room = space;
    }
    if (best < 0) {  // no neighbour placed yet, or no room beside any: the emptiest part
      best = 0, best_room = room(load, weight, capacity, constraints);
      for (int64_t p = 1; p < parts; ++p) {
        const int64_t space = room(load + p * constraints, weight, capacity, constraints);
        if (space > best_room) best = p, best_room = space;
      }
    }
    for (int64_t c = 0; c < constraints; ++c) load[best * constraints + c] += weight[c];
    part[first + row] = static_cast<int32_t>(best);
    for (const int32_t p : seen) count[p] = 0;
    seen.clear();
  }
}
