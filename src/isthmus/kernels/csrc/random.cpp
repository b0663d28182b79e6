// Counter-based dropout: whether feature f of node v survives is a function of (stream, v, f) alone.
//
// A row's key is mix64(stream + v * golden); a feature's bits are mix32(low(key) + f * golden) ^ high(key), and it is
// kept when they are at least `threshold` (= p * 2^32). So owner and reader of a row draw the same mask.
#include "common.h"
#include "mix.h"

namespace isthmus {
namespace {

// Everything by value and 32 bits wide like the hash: then the loop runs in vectors.
template <bool Both, typename T>
inline void dropout_row(const T* from, T* to, T* before, int width, uint64_t key, uint32_t threshold, Wide<T> scale,
                        Wide<T> floor) {
  const uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
#pragma omp simd
  for (int f = 0; f < width; ++f) {
    const uint32_t bits = feature_bits(low, high, (uint32_t)f);
    const Wide<T> given = widen(from[f]), value = given < floor ? floor : given;  // NaN stays NaN
    if (Both) narrow(value, before[f]);
    narrow(bits >= threshold ? value * scale : Wide<T>(0), to[f]);
  }
}

// `before`, if it is given, gets what relu makes of x, before anything is dropped.
template <typename T>
void dropout(int64_t rows, int64_t width, const T* x, const int64_t* nodes, uint64_t stream, uint32_t threshold,
             Wide<T> scale, bool relu, T* out, T* before, int threads) {
  const Wide<T> floor = relu ? Wide<T>(0) : -std::numeric_limits<Wide<T>>::infinity();
  auto* drop = before ? dropout_row<true, T> : dropout_row<false, T>;
  for_each(rows, threads, [=](int64_t i) {
    const int64_t at = i * width;
    drop(x + at, out + at, before ? before + at : before, (int)width, key_of(stream, nodes[i]), threshold, scale, floor);
  });
}

// The same mask for rows that store only some of their features: value e is feature indices[e] of its row.
template <typename T>
void dropout_stored(int64_t rows, const int64_t* indptr, const int32_t* indices, const T* values, const int64_t* nodes,
                    uint64_t stream, uint32_t threshold, Wide<T> scale, T* out, int threads) {
  for_each(rows, threads, [=](int64_t i) {
    const uint64_t key = key_of(stream, nodes[i]);
    const uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
      const bool kept = feature_bits(low, high, (uint32_t)indices[e]) >= threshold;
      narrow(kept ? widen(values[e]) * scale : Wide<T>(0), out[e]);
    }
  });
}

// Gradient of relu followed by dropout, from their result: only a kept, positive feature is above zero.
template <typename T>
void kept_positive(int64_t count, const T* out, const T* grad, Wide<T> scale, T* to, int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) narrow(widen(out[i]) > 0 ? widen(grad[i]) * scale : Wide<T>(0), to[i]);
}

// The same where relu's own result, `before`, was used too, and has the gradient `also`.
template <typename T>
void both_positive(int64_t count, const T* out, const T* grad, Wide<T> scale, const T* before, const T* also, T* to,
                   int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count; ++i)
    narrow((widen(out[i]) > 0 ? widen(grad[i]) * scale : Wide<T>(0)) + (widen(before[i]) > 0 ? widen(also[i]) : Wide<T>(0)),
           to[i]);
}

}  // namespace
}  // namespace isthmus

#define ISTHMUS_DROPOUT(SUFFIX, T)                                                                                     \
  ISTHMUS_API void dropout_##SUFFIX(int64_t rows, int64_t width, const T* x, const int64_t* nodes, uint64_t stream,    \
                                    uint32_t threshold, isthmus::Wide<T> scale, int relu, T* out, T* before,           \
                                    int threads) {                                                                     \
    isthmus::dropout<T>(rows, width, x, nodes, stream, threshold, scale, relu != 0, out, before, threads);             \
  }                                                                                                                    \
  ISTHMUS_API void dropout_stored_##SUFFIX(int64_t rows, const int64_t* indptr, const int32_t* indices,                \
                                           const T* values, const int64_t* nodes, uint64_t stream, uint32_t threshold, \
                                           isthmus::Wide<T> scale, T* out, int threads) {                              \
    isthmus::dropout_stored<T>(rows, indptr, indices, values, nodes, stream, threshold, scale, out, threads);          \
  }                                                                                                                    \
  ISTHMUS_API void kept_positive_##SUFFIX(int64_t count, const T* out, const T* grad, isthmus::Wide<T> scale, T* to,   \
                                          int threads) {                                                               \
    isthmus::kept_positive<T>(count, out, grad, scale, to, threads);                                                   \
  }                                                                                                                    \
  ISTHMUS_API void both_positive_##SUFFIX(int64_t count, const T* out, const T* grad, isthmus::Wide<T> scale,          \
                                          const T* before, const T* also, T* to, int threads) {                        \
    isthmus::both_positive<T>(count, out, grad, scale, before, also, to, threads);                                     \
  }

ISTHMUS_DROPOUT(f32, float)
ISTHMUS_DROPOUT(f64, double)
ISTHMUS_DROPOUT(bf16, isthmus::Bf16)
