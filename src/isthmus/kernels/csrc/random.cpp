// Counter-based dropout: whether feature f of node v survives is a function of (stream, v, f) alone.
//
// A row's key is mix64(stream + v * golden); a feature's bits are mix32(low(key) + f * golden) ^ high(key), and it is
// kept when they are at least `threshold` (= p * 2^32). So owner and reader of a row draw the same mask.
#include "common.h"
#include "mix.h"

namespace isthmus {
namespace {

// Everything by value and 32 bits wide like the hash: then the loop runs in vectors.
template <typename T>
inline void dropout_row(const T* from, T* to, int width, uint64_t key, uint32_t threshold, T scale,
                        T floor) {
  const uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
#pragma omp simd
  for (int f = 0; f < width; ++f) {
    const uint32_t bits = feature_bits(low, high, (uint32_t)f);
    const T value = from[f] > floor ? from[f] : floor;
    to[f] = bits >= threshold ? value * scale : T(0);
  }
}

template <typename T>
void dropout(int64_t rows, int64_t width, const T* x, const int64_t* nodes, uint64_t stream, uint32_t threshold, T scale,
             bool relu, T* out, int threads) {
  const T floor = relu ? T(0) : -std::numeric_limits<T>::infinity();
  for_each(rows, threads, [=](int64_t i) {
    dropout_row(x + i * width, out + i * width, (int)width, key_of(stream, nodes[i]), threshold, scale, floor);
  });
}

// Gradient of relu followed by dropout, from what came out: only a kept, positive feature is above zero.
template <typename T>
void kept_positive(int64_t count, const T* out, const T* grad, T scale, T* to, int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) to[i] = out[i] > T(0) ? grad[i] * scale : T(0);
}

// The same where relu's own result, `before`, was used too, and has the gradient `also`.
template <typename T>
void both_positive(int64_t count, const T* out, const T* grad, T scale, const T* before, const T* also, T* to,
                   int threads) {
#pragma omp parallel for simd schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count; ++i)
    to[i] = (out[i] > T(0) ? grad[i] * scale : T(0)) + (before[i] > T(0) ? also[i] : T(0));
}

}  // namespace
}  // namespace isthmus

#define ISTHMUS_DROPOUT(SUFFIX, T)                                                                                   \
  ISTHMUS_API void dropout_##SUFFIX(int64_t rows, int64_t width, const T* x, const int64_t* nodes, uint64_t stream,  \
                                    uint32_t threshold, T scale, int relu, T* out, int threads) {                    \
    isthmus::dropout<T>(rows, width, x, nodes, stream, threshold, scale, relu != 0, out, threads);                   \
  }                                                                                                                  \
  ISTHMUS_API void kept_positive_##SUFFIX(int64_t count, const T* out, const T* grad, T scale, T* to, int threads) { \
    isthmus::kept_positive<T>(count, out, grad, scale, to, threads);                                                 \
  }                                                                                                                  \
  ISTHMUS_API void both_positive_##SUFFIX(int64_t count, const T* out, const T* grad, T scale, const T* before,      \
                                          const T* also, T* to, int threads) {                                       \
    isthmus::both_positive<T>(count, out, grad, scale, before, also, to, threads);                                   \
  }

ISTHMUS_DROPOUT(f32, float)
ISTHMUS_DROPOUT(f64, double)
