// Drawing rows and edges, and the patterns of what was drawn. What is drawn is a function of (stream, number) alone.
#include <cmath>
#include <vector>

#include "common.h"
#include "mix.h"

namespace isthmus {
namespace {

// The size-th smallest of `count` keys, if it lies in [low, high]: the keys below are counted, only those inside kept.
bool find_cutoff(uint64_t stream, int64_t count, int64_t size, uint64_t low, uint64_t high, uint64_t* cutoff) {
  int64_t below = 0;
  std::vector<uint64_t> inside;
  for (int64_t j = 0; j < count; ++j) {
    const uint64_t key = key_of(stream, j);
    below += key < low;
    if (key - low <= high - low) inside.push_back(key);
  }
  const int64_t at = size - 1 - below;
  if (at < 0 || at >= (int64_t)inside.size()) return false;
  std::nth_element(inside.begin(), inside.begin() + at, inside.end());
  *cutoff = inside[at];
  return true;
}

// The key below which `expected` of `count` uniform keys lie on average.
uint64_t quantile(double expected, int64_t count) {
  if (expected >= (double)count) return std::numeric_limits<uint64_t>::max();
  return expected > 0 ? (uint64_t)std::ldexp(expected / (double)count, 64) : 0;
}

}  // namespace
}  // namespace isthmus

// The `size` > 0 numbers below `count` with the smallest keys, ascending. Keys are distinct: mix64 is a bijection.
ISTHMUS_API void draw_rows(uint64_t stream, int64_t count, int64_t size, int32_t* rows) {
  // Three deviations either side hold the cutoff nearly always, and few keys.
  const double margin = 3 * std::sqrt((double)size * (1 - (double)size / (double)count));
  const uint64_t low = isthmus::quantile((double)size - margin, count);
  const uint64_t high = isthmus::quantile((double)size + margin, count);
  uint64_t cutoff = 0;
  if (!isthmus::find_cutoff(stream, count, size, low, high, &cutoff))
    isthmus::find_cutoff(stream, count, size, 0, std::numeric_limits<uint64_t>::max(), &cutoff);
  int64_t taken = 0;
  for (int32_t j = 0; taken < size; ++j) {
    rows[taken] = j;
    taken += isthmus::key_of(stream, j) <= cutoff;
  }
}

// keep[e] = bits(a, b) < p_e * 2^32; p_e is chances[e], or p if there are none.
ISTHMUS_API void draw_edges(uint64_t stream, int64_t rows, const int64_t* indptr, const int32_t* indices,
                            const int64_t* row_ids, const int64_t* col_ids, double p, const float* chances,
                            int symmetric, bool* keep, int threads) {
  isthmus::for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r) {
      const int64_t row = row_ids[r];
      const uint64_t row_key = isthmus::key_of(stream, row);
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) {
        const int64_t col = col_ids[indices[e]];
        const bool turned = symmetric && col < row;
        const uint64_t first_key = turned ? isthmus::key_of(stream, col) : row_key;
        const uint64_t key = isthmus::key_of(first_key, turned ? row : col);
        keep[e] = (double)(key >> 32) < (chances ? (double)chances[e] : p) * 0x1p32;
      }
    }
  });
}

// Copies the columns of rows[0..count) to where the new pattern has them.
ISTHMUS_API void select_rows(int64_t count, const int32_t* rows, const int64_t* indptr, const int32_t* indices,
                             const int64_t* new_indptr, int32_t* new_indices, int threads) {
  isthmus::for_row_chunks(new_indptr, count, threads, [&](int64_t first, int64_t stop) {
    for (int64_t i = first; i < stop; ++i)
      std::copy(indices + indptr[rows[i]], indices + indptr[rows[i] + 1], new_indices + new_indptr[i]);
  });
}

// new_indptr of the pattern of the kept edges.
ISTHMUS_API void count_kept(int64_t rows, const int64_t* indptr, const uint8_t* keep, int64_t* new_indptr,
                            int threads) {
  new_indptr[0] = 0;
  isthmus::for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r) {
      int64_t kept = 0;
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) kept += keep[e];
      new_indptr[r + 1] = kept;
    }
  });
  for (int64_t r = 0; r < rows; ++r) new_indptr[r + 1] += new_indptr[r];
}

// Columns (renumbered by `columns`, if given) and numbers of the kept edges. Every edge is written where the next kept
// one belongs and only a kept one moves that place on: no branch to guess, and none is written past its row.
ISTHMUS_API void select_edges(int64_t rows, const int64_t* indptr, const int32_t* indices, const uint8_t* keep,
                              const int32_t* columns, const int64_t* new_indptr, int32_t* new_indices, int64_t* numbers,
                              int threads) {
  isthmus::for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r)
      for (int64_t e = indptr[r], to = new_indptr[r]; to < new_indptr[r + 1]; ++e) {
        new_indices[to] = columns ? columns[indices[e]] : indices[e];
        numbers[to] = e;
        to += keep[e];
      }
  });
}
