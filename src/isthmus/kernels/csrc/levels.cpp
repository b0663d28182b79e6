// Water-filling, and drawing by it: target i keeps its edge from source j with p_ij = min(1, level_i * value_j).
//
// One number per target and one per source stand for the probabilities of all edges. An edge's p is the product of two
// factors and its random bits are mix32 of the sum of two keys, one of each end: so a pattern and its transpose give an
// edge the same p and the same bits, and one loop serves both.
#include <memory>
#include <vector>

#include "common.h"
#include "mix.h"

namespace isthmus {
namespace {

constexpr int kLanes = 8;   // partial sums of a row: as many on every machine, so that their bits are the same on all
constexpr int kMarks = 32;  // edges to a word of marks

inline double probability(double level, double value) { return std::min(level * value, 1.0); }

// The edges of one pattern and the values of its columns; a worker's nodes have two of them.
struct Side {
  const int64_t* indptr;
  const int32_t* indices;
  const double* value;
  int64_t degree(int64_t r) const { return indptr ? indptr[r + 1] - indptr[r] : 0; }
  void gather(int64_t r, double* to) const {
    const int64_t begin = indptr ? indptr[r] : 0, count = degree(r);
    for (int64_t k = 0; k < count; ++k) to[k] = value[indices[begin + k]];
  }
};

// The level at which `count` values, padded with zeros to whole lanes, add up to the budget. It only rises, so that an
// edge which is full (p = 1) stays full; rounding could say otherwise, hence max and "not more than before".
double water_level(const double* values, int64_t count, double budget) {
  if (count == 0 || budget <= 0) return 0;
  if (budget >= (double)count) return std::numeric_limits<double>::infinity();
  constexpr int width = Vector<double>::lanes;
  typedef Vector<double>::type V;
  double level = 0;
  for (double full_before = -1;;) {
    V sums[kLanes / width] = {}, fulls[kLanes / width] = {};
    for (int64_t k = 0; k < count; k += kLanes)
      for (int part = 0; part < kLanes / width; ++part) {
        const V value = load(values + k + part * width);
        const auto is_full = level * value >= 1.0;
        sums[part] += is_full ? V{} : value;
        fulls[part] += is_full ? V{} + 1.0 : V{};
      }
    double rest = 0, full = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      rest += sums[lane / width][lane % width];
      full += fulls[lane / width][lane % width];
    }
    if (full <= full_before) return level;
    full_before = full;
    level = std::max(level, (budget - full) / rest);
  }
}

// The parts of an edge's hash that target and source contribute. Coupled edges take nothing from the target.
inline uint32_t target_key(uint64_t stream, int64_t id, bool coupled) {
  return coupled ? 0 : (uint32_t)key_of(stream, id);
}
inline uint32_t source_key(uint64_t stream, int64_t id) { return (uint32_t)(key_of(stream, id) >> 32); }

// Every row starts a new word of marks, so that no two threads write to the same word.
inline int64_t first_word(const int64_t* indptr, int64_t r) { return indptr[r] / kMarks + r; }

// Marks which of `count` edges of a row are kept: bits + 1/2 < p * 2^32.
inline uint32_t draw_marks(const int32_t* indices, int count, const uint32_t* col_keys, const double* col_factor,
                           uint32_t row_key, double row_factor) {
  const double chance = row_factor * 0x1p32;
  uint32_t marks = 0;
  for (int k = 0; k < count; ++k) {
    const uint32_t bits = mix32(row_key + col_keys[indices[k]]);
    marks |= (uint32_t)((double)bits + 0.5 < chance * col_factor[indices[k]]) << k;
  }
  return marks;
}

template <typename T>
void weigh_marked(int64_t rows, const int64_t* indptr, const int32_t* indices, const double* row_factor,
                  const double* col_factor, const uint32_t* marks, const int64_t* new_indptr, int32_t* new_indices,
                  T* weights, int64_t* numbers, int threads) {
  for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r) {
      const uint32_t* word = marks + first_word(indptr, r);
      int64_t to = new_indptr[r];
      for (int64_t begin = indptr[r]; to < new_indptr[r + 1]; begin += kMarks)
        for (uint32_t left = *word++; left; left &= left - 1, ++to) {
          const int64_t e = begin + __builtin_ctz(left);
          new_indices[to] = indices[e];
          weights[to] = (T)(1.0 / probability(row_factor[r], col_factor[indices[e]]));
          if (numbers) numbers[to] = e;
        }
    }
  });
}

}  // namespace
}  // namespace isthmus

// level[r] for the edges of row r in both patterns (halo_indptr may be null). A row's values are gathered once.
ISTHMUS_API void fill_levels(int64_t rows, const int64_t* inner_indptr, const int32_t* inner_indices,
                             const double* inner_value, const int64_t* halo_indptr, const int32_t* halo_indices,
                             const double* halo_value, const double* budget, double* level, int threads) {
  const isthmus::Side inner = {inner_indptr, inner_indices, inner_value}, halo = {halo_indptr, halo_indices, halo_value};
  const bool mostly_halo = halo_indptr && halo_indptr[rows] > inner_indptr[rows];
  isthmus::for_row_chunks(mostly_halo ? halo_indptr : inner_indptr, rows, threads, [&](int64_t first, int64_t stop) {
    std::vector<double> values;
    for (int64_t r = first; r < stop; ++r) {
      const int64_t of_inner = inner.degree(r), count = of_inner + halo.degree(r);
      if ((int64_t)values.size() < count + isthmus::kLanes) values.resize(2 * count + isthmus::kLanes);
      inner.gather(r, values.data());
      halo.gather(r, values.data() + of_inner);
      std::fill_n(values.begin() + count, isthmus::kLanes, 0.0);
      level[r] = isthmus::water_level(values.data(), count, budget[r]);
    }
  });
}

// p[e] of every edge; the factors are level and value, or value and level if the rows are the sources.
ISTHMUS_API void edge_probability(int64_t rows, const int64_t* indptr, const int32_t* indices, const double* row_factor,
                                  const double* col_factor, double* p, int threads) {
  isthmus::for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r)
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e)
        p[e] = isthmus::probability(row_factor[r], col_factor[indices[e]]);
  });
}

// Probability that any edge of a row is kept. Adding p of what is left cancels nothing, however small p is.
ISTHMUS_API void inclusion(int64_t rows, const int64_t* indptr, const int32_t* indices, const double* row_factor,
                           const double* col_factor, int coupled, double* any, int threads) {
  isthmus::for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r) {
      double kept = 0;
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) {
        const double p = isthmus::probability(row_factor[r], col_factor[indices[e]]);
        kept = coupled ? std::max(kept, p) : kept + p * (1 - kept);
      }
      any[r] = kept;
    }
  });
}

// Marks the edges that are kept, and writes the new_indptr of their pattern.
ISTHMUS_API void mark_weighted(uint64_t stream, int64_t rows, int64_t cols, const int64_t* indptr,
                               const int32_t* indices, const double* row_factor, const double* col_factor,
                               const int64_t* row_ids, const int64_t* col_ids, int transposed, int coupled,
                               uint32_t* marks, int64_t* new_indptr, int threads) {
  const auto key_of_end = [=](bool target, int64_t id) {
    return target ? isthmus::target_key(stream, id, coupled != 0) : isthmus::source_key(stream, id);
  };
  const std::unique_ptr<uint32_t[]> col_keys(new uint32_t[cols]);
  isthmus::for_each(cols, threads, [&](int64_t c) { col_keys[c] = key_of_end(transposed, col_ids[c]); });
  isthmus::for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r) {
      const uint32_t row_key = key_of_end(!transposed, row_ids[r]);
      uint32_t* word = marks + isthmus::first_word(indptr, r);
      int64_t kept = 0;
      for (int64_t begin = indptr[r]; begin < indptr[r + 1]; begin += isthmus::kMarks) {
        const int count = (int)std::min<int64_t>(isthmus::kMarks, indptr[r + 1] - begin);
        *word = isthmus::draw_marks(indices + begin, count, col_keys.get(), col_factor, row_key, row_factor[r]);
        kept += __builtin_popcount(*word++);
      }
      new_indptr[r + 1] = kept;
    }
  });
  new_indptr[0] = 0;
  for (int64_t r = 0; r < rows; ++r) new_indptr[r + 1] += new_indptr[r];
}

#define ISTHMUS_WEIGH(SUFFIX, T)                                                                                       \
  ISTHMUS_API void weigh_marked_##SUFFIX(int64_t rows, const int64_t* indptr, const int32_t* indices,                  \
                                         const double* row_factor, const double* col_factor, const uint32_t* marks,    \
                                         const int64_t* new_indptr, int32_t* new_indices, T* weights, int64_t* numbers, \
                                         int threads) {                                                                \
    isthmus::weigh_marked<T>(rows, indptr, indices, row_factor, col_factor, marks, new_indptr, new_indices, weights,   \
                             numbers, threads);                                                                        \
  }

ISTHMUS_WEIGH(f32, float)
ISTHMUS_WEIGH(f64, double)
