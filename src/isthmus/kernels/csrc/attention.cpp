// Attention over the edges of a CSR, H heads of D features:
//
//   z_e = leaky(target_i + source_j),  a_e = softmax over row i of z_e,  out_i = sum_e a_e x_j      (per head)
//
// and its gradient in two passes that never write to a row shared by threads: by row (edges), then by column (nodes).
#include <cmath>

#include "common.h"

namespace isthmus {
namespace {

template <typename T>
struct Heads {
  int64_t heads, width;  // H, D
  const T *target, *source;
  T slope;

  inline T score(int64_t i, int64_t j, int64_t h) const { return target[i * heads + h] + source[j * heads + h]; }
  inline T leaky(T s) const { return s > 0 ? s : s * slope; }
};

template <typename T>
void softmax(const Heads<T>& at, const int64_t* indptr, const int32_t* indices, int64_t rows, T* alpha, int threads) {
  for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t i = first; i < stop; ++i)
      for (int64_t h = 0; h < at.heads; ++h) {
        T largest = -std::numeric_limits<T>::infinity(), total = 0;
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
          const T z = at.leaky(at.score(i, indices[e], h));
          alpha[e * at.heads + h] = z;
          largest = std::max(largest, z);
        }
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e)
          total += alpha[e * at.heads + h] = std::exp(alpha[e * at.heads + h] - largest);
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) alpha[e * at.heads + h] /= total;
      }
  });
}

// out[r] = sum_e alpha[order[e]] * x[indices[e]] per head; order may be null.
template <typename T>
void weighted_sum(int64_t heads, int64_t width, const int64_t* indptr, const int32_t* indices, const int64_t* order, int64_t rows,
                  const T* alpha, const T* x, T* out, int threads) {
  const int64_t all = heads * width;
  for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r) {
      T* to = out + r * all;
      std::fill(to, to + all, T(0));
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) {
        const T* a = alpha + (order ? order[e] : e) * heads;
        const T* from = x + indices[e] * all;
        for (int64_t h = 0; h < heads; ++h)
#pragma omp simd
          for (int64_t d = 0; d < width; ++d) to[h * width + d] += a[h] * from[h * width + d];
      }
    }
  });
}

template <typename T>
void backward_edges(const Heads<T>& at, const int64_t* indptr, const int32_t* indices, int64_t rows, const T* x,
                    const T* alpha, const T* grad, T* grad_score, T* grad_target, int threads) {
  for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t i = first; i < stop; ++i)
      for (int64_t h = 0; h < at.heads; ++h) {
        T mean = 0, total = 0;
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
          const T* from = x + (indices[e] * at.heads + h) * at.width;
          const T* g = grad + (i * at.heads + h) * at.width;
          T dot = 0;
#pragma omp simd reduction(+ : dot)
          for (int64_t d = 0; d < at.width; ++d) dot += from[d] * g[d];
          grad_score[e * at.heads + h] = dot;
          mean += alpha[e * at.heads + h] * dot;
        }
        for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
          T& z = grad_score[e * at.heads + h];
          z = alpha[e * at.heads + h] * (z - mean) * (at.score(i, indices[e], h) > 0 ? T(1) : at.slope);
          total += z;
        }
        grad_target[i * at.heads + h] = total;
      }
  });
}

template <typename T>
void sum_edges(int64_t heads, const int64_t* indptr, const int64_t* order, int64_t rows, const T* values, T* out, int threads) {
  for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t r = first; r < stop; ++r)
      for (int64_t h = 0; h < heads; ++h) {
        T total = 0;
        for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) total += values[order[e] * heads + h];
        out[r * heads + h] = total;
      }
  });
}

}  // namespace
}  // namespace isthmus

#define ISTHMUS_ATTENTION(SUFFIX, T)                                                                                   \
  ISTHMUS_API void attention_##SUFFIX(int64_t rows, const int64_t* indptr, const int32_t* indices, int64_t heads,      \
                                      int64_t width, const T* target, const T* source, T slope, const T* x, T* alpha,  \
                                      T* out, int threads) {                                                           \
    isthmus::softmax<T>({heads, width, target, source, slope}, indptr, indices, rows, alpha, threads);                 \
    isthmus::weighted_sum<T>(heads, width, indptr, indices, nullptr, rows, alpha, x, out, threads);                    \
  }                                                                                                                    \
  ISTHMUS_API void attention_grad_##SUFFIX(                                                                            \
      int64_t rows, const int64_t* indptr, const int32_t* indices, int64_t cols, const int64_t* t_indptr,              \
      const int32_t* t_indices, const int64_t* order, int64_t heads, int64_t width, const T* target, const T* source,  \
      T slope, const T* x, const T* alpha, const T* grad, T* grad_score, T* grad_target, T* grad_source, T* grad_x,    \
      int threads) {                                                                                                   \
    isthmus::backward_edges<T>({heads, width, target, source, slope}, indptr, indices, rows, x, alpha, grad,           \
                               grad_score, grad_target, threads);                                                      \
    isthmus::sum_edges<T>(heads, t_indptr, order, cols, grad_score, grad_source, threads);                             \
    isthmus::weighted_sum<T>(heads, width, t_indptr, t_indices, order, cols, alpha, grad, grad_x, threads);            \
  }

ISTHMUS_ATTENTION(f32, float)
ISTHMUS_ATTENTION(f64, double)
