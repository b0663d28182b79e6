// Shared by the loops of vertex-cuts: the parts in which every node has a replica, and the edges that are placed.
#pragma once

#include <cstdint>

namespace isthmus {

constexpr int16_t kUnplaced = -1;

// A set of parts for every node: `width` words of 64 bits each.
struct Replicas {
  uint64_t* words;
  int64_t width;

  bool has(int64_t node, int64_t part) const { return words[node * width + part / 64] >> (part % 64) & 1; }
  void add(int64_t node, int64_t part) { words[node * width + part / 64] |= uint64_t(1) << (part % 64); }
};

// Calls body(edge, row, column) for the edges of rows [first, last) that are placed: of a symmetric graph one of each
// pair, from the smaller node to the larger. `indices` begins with the edges of row `first`.
template <typename Body>
inline void for_edges(int64_t first, int64_t last, const int64_t* indptr, const int32_t* indices, bool symmetric,
                      Body body) {
  for (int64_t row = first; row < last; ++row)
    for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
      const int32_t column = indices[e - indptr[first]];
      if (symmetric && column > row) break;  // columns ascend
      body(e, (int32_t)row, column);
    }
}

}  // namespace isthmus
