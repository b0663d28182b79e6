// Moving rows between a matrix and a message, and transposing a CSR.
#include "common.h"

namespace isthmus {
namespace {

constexpr int kAhead = 8;

template <typename Id>
void gather(int64_t count, const Id* rows, const char* from, int64_t bytes, int64_t from_stride, char* to, int threads) {
  for_each(count, threads, [&](int64_t i) {
    const char* ahead = from + rows[std::min(i + kAhead, count - 1)] * from_stride;
    for (int64_t byte = 0; byte < bytes; byte += kCacheLine) __builtin_prefetch(ahead + byte);
    std::memcpy(to + i * bytes, from + rows[i] * from_stride, bytes);
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

// to[i] = from[rows[i]], rows of `bytes` bytes.
#define ISTHMUS_GATHER(SUFFIX, ID)                                                                                   \
  ISTHMUS_API void gather_rows_##SUFFIX(int64_t count, const ID* rows, const char* from, int64_t bytes,              \
                                        int64_t from_stride, char* to, int threads) {                                \
    isthmus::gather(count, rows, from, bytes, from_stride, to, threads);                                             \
  }

ISTHMUS_GATHER(i32, int32_t)
ISTHMUS_GATHER(i64, int64_t)

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
