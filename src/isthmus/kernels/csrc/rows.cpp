// Moving rows between a matrix and a message, and transposing a CSR.
#include "common.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace isthmus {
namespace {

constexpr int kAhead = 16;                     // rows between prefetch and use
constexpr int64_t kBeyondCaches = 16ll << 20;  // bytes of a result that no cache holds until it is read

inline void prefetch_row(const char* row, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += kCacheLine) __builtin_prefetch(row + byte);
}

#ifdef __SSE2__
// Writes past the caches: lines that are overwritten as a whole need not be read first. Both a multiple of 16 bytes.
inline void stream_row(char* to, const char* from, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += 16)
    _mm_stream_si128((__m128i*)(to + byte), _mm_loadu_si128((const __m128i*)(from + byte)));
}
inline bool streams(const char* to, int64_t count, int64_t bytes) {
  return count * bytes >= kBeyondCaches && bytes % 16 == 0 && (uintptr_t)to % 16 == 0;
}
inline void finish_streams() { _mm_sfence(); }
#else
inline void stream_row(char* to, const char* from, int64_t bytes) { std::memcpy(to, from, bytes); }
inline bool streams(const char*, int64_t, int64_t) { return false; }
inline void finish_streams() {}
#endif

// The rows of a matrix by the ids that their nodes have elsewhere, `first` … `first + count - 1`.
struct Held {
  int64_t first, count;
  template <typename Id>
  uint64_t row(Id node) const { return (uint64_t)((int64_t)node - first); }
  template <typename Id>
  bool has(Id node) const { return row(node) < (uint64_t)count; }
  template <typename Id>
  uint64_t row_or_first(Id node) const { return has(node) ? row(node) : 0; }
};

template <typename Id>
void gather(int64_t count, const Id* nodes, Held held, const char* from, int64_t bytes, int64_t from_stride, char* to,
            int threads) {
  const bool past_caches = streams(to, count, bytes);
  for_chunks(count, threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      prefetch_row(from + held.row_or_first(nodes[std::min(i + kAhead, count - 1)]) * from_stride, bytes);
      if (!held.has(nodes[i])) continue;
      const char* row = from + held.row(nodes[i]) * from_stride;
      if (past_caches) stream_row(to + i * bytes, row, bytes);
      else std::memcpy(to + i * bytes, row, bytes);
    }
    if (past_caches) finish_streams();
  });
}

template <typename Id>
void gather_rounded(int64_t count, const Id* nodes, Held held, const float* from, int64_t width, int64_t from_stride,
                    Bf16* to, int threads) {
  for_each(count, threads, [=](int64_t i) {
    const float* next = from + held.row_or_first(nodes[std::min(i + kAhead, count - 1)]) * from_stride;
    prefetch_row((const char*)next, width * sizeof(float));
    if (!held.has(nodes[i])) return;
    const float* row = from + held.row(nodes[i]) * from_stride;
    for (int64_t f = 0; f < width; ++f) narrow(row[f], to[i * width + f]);
  });
}

template <typename T>
void scatter_add(int64_t count, const int32_t* rows, const T* from, int64_t width, T* to, int64_t to_stride, int threads) {
  for_each(count, threads, [&](int64_t i) {
    T* target = to + rows[i] * to_stride;
    const T* source = from + i * width;
    for (int64_t f = 0; f < width; ++f) narrow(widen(target[f]) + widen(source[f]), target[f]);
  });
}

}  // namespace
}  // namespace isthmus

// to[i] = from[nodes[i] - first], rows of `bytes` bytes; left as it is where `from`, of `rows` rows, has no such row.
#define ISTHMUS_GATHER(SUFFIX, ID)                                                                                   \
  ISTHMUS_API void gather_rows_##SUFFIX(int64_t count, const ID* nodes, int64_t first, int64_t rows,                 \
                                        const char* from, int64_t bytes, int64_t from_stride, char* to,              \
                                        int threads) {                                                               \
    isthmus::gather(count, nodes, {first, rows}, from, bytes, from_stride, to, threads);                             \
  }

ISTHMUS_GATHER(i32, int32_t)
ISTHMUS_GATHER(i64, int64_t)

// The same from fp32 to bf16.
#define ISTHMUS_GATHER_ROUNDED(SUFFIX, ID)                                                                           \
  ISTHMUS_API void gather_rounded_##SUFFIX(int64_t count, const ID* nodes, int64_t first, int64_t rows,              \
                                           const float* from, int64_t width, int64_t from_stride,                    \
                                           isthmus::Bf16* to, int threads) {                                         \
    isthmus::gather_rounded(count, nodes, {first, rows}, from, width, from_stride, to, threads);                     \
  }

ISTHMUS_GATHER_ROUNDED(i32, int32_t)
ISTHMUS_GATHER_ROUNDED(i64, int64_t)

// The places of nodes that are not among the `rows` from `first` on; returns how many. `places` has room for one more.
ISTHMUS_API int64_t places_outside(int64_t count, const int64_t* nodes, int64_t first, int64_t rows, int64_t* places) {
  const isthmus::Held held{first, rows};
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    places[found] = i;
    found += !held.has(nodes[i]);
  }
  return found;
}

// to[rows[i]] += from[i]; the rows are distinct.
#define ISTHMUS_SCATTER_ADD(SUFFIX, T)                                                                              \
  ISTHMUS_API void scatter_add_##SUFFIX(int64_t count, const int32_t* rows, const T* from, int64_t width, T* to,    \
                                        int64_t to_stride, int threads) {                                           \
    isthmus::scatter_add(count, rows, from, width, to, to_stride, threads);                                         \
  }

ISTHMUS_SCATTER_ADD(f32, float)
ISTHMUS_SCATTER_ADD(f64, double)
ISTHMUS_SCATTER_ADD(bf16, isthmus::Bf16)

// The transpose of a CSR by counting sort. order[k] (if asked for) is the edge that edge k of the transpose was.
// Columns of a row of the transpose are ascending.
ISTHMUS_API void transpose_csr(int64_t rows, int64_t cols, const int64_t* indptr, const int32_t* indices,
                               int64_t* t_indptr, int32_t* t_indices, int64_t* order) {
  std::fill(t_indptr, t_indptr + cols + 1, 0);
  for (int64_t e = 0; e < indptr[rows]; ++e) ++t_indptr[indices[e] + 1];
  for (int64_t c = 0; c < cols; ++c) t_indptr[c + 1] += t_indptr[c];
  // t_indptr[c] serves as the place of the next edge of column c, and is moved back afterwards.
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) {
      const int64_t at = t_indptr[indices[e]]++;
      t_indices[at] = (int32_t)r;
      if (order) order[at] = e;
    }
  for (int64_t c = cols; c > 0; --c) t_indptr[c] = t_indptr[c - 1];
  t_indptr[0] = 0;
}
