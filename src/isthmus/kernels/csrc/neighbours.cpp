// Drawing neighbours of nodes for mini-batches. What a row gets is a function of (stream, id of its node) alone.
//
// A row is given by its span in the list of edges, `begin[i]` and `degree[i]`, and by the id of its node, `ids[i]`. Draw
// number j of a row has the bits key_of(key_of(stream, id), j). Every address is computed, and asked for, a block of
// rows before it is read: the lists are far larger than the caches.
#include <cmath>
#include <utility>
#include <vector>

#include "common.h"
#include "exponential.h"
#include "mix.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace isthmus {
namespace {

constexpr int64_t kBlock = 64;   // rows whose addresses are computed before the first is read
constexpr int64_t kScan = 32;    // fanouts up to which a draw is compared with all earlier ones of its row
constexpr int64_t kAhead = 24;   // entries between prefetch and use

// floor(bits / 2^64 * bound)
inline int64_t below(uint64_t bits, int64_t bound) {
  return (int64_t)(((unsigned __int128)bits * (uint64_t)bound) >> 64);
}

// Floyd's algorithm: `size` < degree distinct places below `degree`, every subset as likely.
class Floyd {
 public:
  void draw(uint64_t key, int64_t degree, int64_t size, int64_t* places) {
    if (size > kScan) return draw_marked(key, degree, size, places);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t last = degree - size + i, place = below(key_of(key, i), last + 1);
      bool taken = false;
      for (int64_t k = 0; k < i; ++k) taken |= places[k] == place;
      places[i] = taken ? last : place;
    }
  }

 private:
  void draw_marked(uint64_t key, int64_t degree, int64_t size, int64_t* places) {
    if ((int64_t)marks_.size() * 64 < degree) marks_.resize(degree / 64 + 1);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t last = degree - size + i, place = below(key_of(key, i), last + 1);
      places[i] = marks_[place / 64] >> (place % 64) & 1 ? last : place;
      marks_[places[i] / 64] |= 1ull << (places[i] % 64);
    }
    for (int64_t i = 0; i < size; ++i) marks_[places[i] / 64] = 0;
  }
  std::vector<uint64_t> marks_;
};

// The smallest `size` of a row's keys, exponential variate / weight; ties go to the earlier place.
class Race {
 public:
  typedef std::pair<double, int64_t> Runner;

  // Returns the key of the first place that is not drawn; infinite if all that can be drawn are.
  double draw(uint64_t key, int64_t degree, const float* weight, int64_t size, int64_t* places) {
    runners_.clear();
    for (int64_t j = 0; j < degree; ++j)
      if (weight[j] > 0) runners_.emplace_back((double)exponential(key_of(key, j)) / (double)weight[j], j);
    const auto end = runners_.begin() + std::min<int64_t>(size + 1, runners_.size());
    std::partial_sort(runners_.begin(), end, runners_.end());
    for (int64_t i = 0; i < size; ++i) places[i] = runners_[i].second;
    return (int64_t)runners_.size() > size ? runners_[size].first : std::numeric_limits<double>::infinity();
  }

 private:
  std::vector<Runner> runners_;
};

// The winner of one race, for draws with replacement.
inline int64_t winner(uint64_t key, int64_t degree, const float* weight) {
  int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < degree; ++j) {
    const double mine = (double)exponential(key_of(key, j)) / (double)weight[j];
    if (weight[j] > 0 && mine < least) least = mine, best = j;
  }
  return best;
}

// The numbers r that LABOR-0 compares: those of all columns from a table, or each from the name of its node. An edge of a
// row is kept if r < size / degree.
struct Labor {
  uint64_t stream;
  const int32_t* indices;
  const int64_t* names;
  const uint32_t* table;

  bool keeps(int32_t column, uint32_t limit) const {
    return (table ? table[column] : (uint32_t)(key_of(stream, names ? names[column] : column) >> 32)) < limit;
  }
  // The least r that is too large, times 2^32, in rows with more than `size` edges.
  static uint32_t limit(int64_t degree, int64_t size) {
    return (uint32_t)((((uint64_t)size << 32) + (uint64_t)degree - 1) / (uint64_t)degree);
  }

  // Writes the columns of edges that are kept, and their numbers if asked for; returns how many there are.
  int64_t take(int64_t begin, int64_t end, uint32_t limit, int32_t* columns, int64_t* numbers) const {
    int64_t kept = 0, e = begin;
#ifdef __AVX512F__
    const __m512i most = _mm512_set1_epi32((int)limit);
    for (; table && e < end; e += 16) {
      const __mmask16 here = end - e < 16 ? (__mmask16)((1u << (end - e)) - 1) : (__mmask16)0xffff;
      const __m512i column = _mm512_maskz_loadu_epi32(here, indices + e);
      const __mmask16 keep = _mm512_mask_cmplt_epu32_mask(here, _mm512_mask_i32gather_epi32(column, here, column, table, 4), most);
      const int count = __builtin_popcount(keep);
      _mm512_mask_storeu_epi32(columns + kept, (__mmask16)((1u << count) - 1), _mm512_maskz_compress_epi32(keep, column));
      if (numbers)
        for (unsigned bits = keep, at = 0; bits; bits &= bits - 1, ++at) numbers[kept + at] = e + __builtin_ctz(bits);
      kept += count;
    }
#endif
    for (; e < end; ++e) {  // only a kept one moves the place on
      columns[kept] = indices[e];
      if (numbers) numbers[kept] = e;
      kept += keeps(indices[e], limit);
    }
    return kept;
  }
};

}  // namespace

// begin[i] and degree[i] of the rows of a pattern.
ISTHMUS_API void row_spans(int64_t count, const int32_t* rows, const int64_t* indptr, int64_t* begin, int64_t* degree) {
  for (int64_t i = 0; i < count; ++i) {
    __builtin_prefetch(indptr + rows[std::min(i + kAhead, count - 1)]);
    begin[i] = indptr[rows[i]];
    degree[i] = indptr[rows[i] + 1] - begin[i];
  }
}

// to[i] = from[at[i]]
ISTHMUS_API void gather_ids(int64_t count, const int32_t* at, const int64_t* from, int64_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    __builtin_prefetch(from + at[std::min(i + kAhead, count - 1)]);
    to[i] = from[at[i]];
  }
}

// Columns and numbers (if asked for) of edges drawn uniformly; row i has new_indptr[i+1] - new_indptr[i] of them.
ISTHMUS_API void draw_uniform(uint64_t stream, int64_t rows, const int64_t* begin, const int64_t* degree,
                              const int64_t* ids, int replace, const int64_t* new_indptr, const int32_t* indices,
                              int32_t* columns, int64_t* numbers, int threads) {
  for_row_chunks(new_indptr, rows, threads, [&](int64_t first, int64_t stop) {
    Floyd floyd;
    std::vector<int64_t> room;
    for (int64_t from = first; from < stop; from += kBlock) {
      const int64_t to = std::min(from + kBlock, stop), at = new_indptr[from];
      if (!numbers && (int64_t)room.size() < new_indptr[to] - at) room.resize(2 * (new_indptr[to] - at));
      int64_t* const edges = numbers ? numbers + at : room.data();
      for (int64_t r = from; r < to; ++r) {
        int64_t* const mine = edges + (new_indptr[r] - at);
        const int64_t size = new_indptr[r + 1] - new_indptr[r];
        if (replace) {
          const uint64_t key = key_of(stream, ids[r]);
          for (int64_t i = 0; i < size; ++i) mine[i] = below(key_of(key, i), degree[r]);
        } else if (size == degree[r]) {
          for (int64_t i = 0; i < size; ++i) mine[i] = i;
        } else {
          floyd.draw(key_of(stream, ids[r]), degree[r], size, mine);
        }
        for (int64_t i = 0; i < size; ++i) {
          mine[i] += begin[r];
          __builtin_prefetch(indices + mine[i]);
        }
      }
      for (int64_t e = 0; e < new_indptr[to] - at; ++e) columns[at + e] = indices[edges[e]];
    }
  });
}

// How many places of a row have a positive weight, at most `most`.
ISTHMUS_API void count_weighted(int64_t rows, const int64_t* begin, const int64_t* degree, const float* weight,
                                int64_t most, int64_t* counts, int threads) {
  for_each(rows, threads, [&](int64_t r) {
    int64_t count = 0;
    for (int64_t j = 0; j < degree[r] && count < most; ++j) count += weight[begin[r] + j] > 0;
    counts[r] = count;
  });
}

// Numbers of edges drawn by weight, and per row (without replacement) the key of the first edge that was not drawn.
ISTHMUS_API void draw_by_weight(uint64_t stream, int64_t rows, const int64_t* begin, const int64_t* degree,
                                const int64_t* ids, const float* weight, int replace, const int64_t* new_indptr,
                                int64_t* numbers, double* threshold, int threads) {
  for_row_chunks(new_indptr, rows, threads, [&](int64_t first, int64_t stop) {
    Race race;
    for (int64_t r = first; r < stop; ++r) {
      int64_t* const mine = numbers + new_indptr[r];
      const int64_t size = new_indptr[r + 1] - new_indptr[r];
      const uint64_t key = key_of(stream, ids[r]);
      const float* of_row = weight + begin[r];
      if (replace)
        for (int64_t i = 0; i < size; ++i) mine[i] = winner(key_of(key, i), degree[r], of_row);
      else
        threshold[r] = race.draw(key, degree[r], of_row, size, mine);
      for (int64_t i = 0; i < size; ++i) mine[i] += begin[r];
    }
  });
}

// The number r of every column.
ISTHMUS_API void labor_table(uint64_t stream, int64_t columns, const int64_t* names, uint32_t* table) {
  for (int64_t c = 0; c < columns; ++c) table[c] = (uint32_t)(key_of(stream, names[c]) >> 32);
}

// The columns (and numbers, if asked for) of the edges that LABOR-0 keeps, and how many they are in each row. Each of as
// many equal shares of rows as there are threads writes its own from place starts[first row] on: starts are those of all
// edges.
ISTHMUS_API void draw_labor(uint64_t stream, int64_t rows, const int64_t* begin, const int64_t* degree,
                            const int32_t* indices, const int64_t* names, const uint32_t* table, int64_t size,
                            const int64_t* starts, int64_t* counts, int32_t* columns, int64_t* numbers,
                            int threads) {
  const Labor labor{stream, indices, names, table};
  for_chunks(rows, threads, [&](int64_t first, int64_t last) {
    int64_t at = starts[first];
    for (int64_t r = first; r < last; at += counts[r], ++r) {
      const int64_t soon = std::min(r + 8, rows - 1), most = std::min<int64_t>(degree[soon], 1024);
      for (int64_t e = 0; e < most; e += 16) __builtin_prefetch(indices + begin[soon] + e);
      if (degree[r] > size) {
        counts[r] = labor.take(begin[r], begin[r] + degree[r], Labor::limit(degree[r], size), columns + at,
                               numbers ? numbers + at : nullptr);
        continue;
      }
      counts[r] = degree[r];
      for (int64_t j = 0; j < degree[r]; ++j) {
        columns[at + j] = indices[begin[r] + j];
        if (numbers) numbers[at + j] = begin[r] + j;
      }
    }
  });
}

}  // namespace isthmus
