// Sums down the columns of rows, for norms over all nodes: moments, what a norm's gradient needs of them, and the
// gradient itself, each in one pass over the rows.
//
// Rows are summed in blocks: in their own precision inside a block, in double over the blocks. Blocks are the same for
// every number of threads, so the sums are.
#include <vector>

#include "common.h"

namespace isthmus {
namespace {

constexpr int64_t kBlock = 64;    // rows summed in their own precision
constexpr int64_t kChunk = 4096;  // rows of one thread, a multiple of kBlock

// Calls body(first_row, last_row, sums) for each chunk of rows, sums being 2 x width doubles of that chunk alone.
template <typename Body>
std::vector<double> sum_chunks(int64_t rows, int64_t width, int threads, Body body) {
  const int64_t chunks = (rows + kChunk - 1) / kChunk;
  std::vector<double> sums(chunks * 2 * width, 0.0);
  for_each(chunks, threads, [&](int64_t k) {
    body(k * kChunk, std::min(rows, (k + 1) * kChunk), sums.data() + k * 2 * width);
  });
  return sums;
}

// sums[0] += sum of a, sums[1] += sum of a * b, where (a, b) = values(row, column).
template <typename T, typename Values>
void sum_pairs(int64_t begin, int64_t end, int64_t width, double* sums, Values values) {
  std::vector<T> block(2 * width);
  T* __restrict__ first = block.data();
  T* __restrict__ second = first + width;
  for (int64_t from = begin; from < end; from += kBlock) {
    std::fill(block.begin(), block.end(), T(0));
    for (int64_t r = from; r < std::min(end, from + kBlock); ++r) values(r, first, second);
    for (int64_t f = 0; f < 2 * width; ++f) sums[f] += block[f];
  }
}

// Deviations are taken from the mean of a chunk's first rows, so that a mean far from zero costs no digits; chunks are
// then merged as Chan, Golub and LeVeque do it.
template <typename T>
void moments(int64_t rows, int64_t width, const T* x, int64_t stride, double* mean, double* squares, int threads) {
  const int64_t chunks = (rows + kChunk - 1) / kChunk;
  std::vector<T> pivots(chunks * width, T(0));
  const std::vector<double> sums = sum_chunks(rows, width, threads, [&](int64_t begin, int64_t end, double* into) {
    T* __restrict__ pivot = pivots.data() + begin / kChunk * width;
    const int64_t some = std::min(end, begin + kBlock) - begin;
    for (int64_t r = begin; r < begin + some; ++r)
      for (int64_t f = 0; f < width; ++f) pivot[f] += x[r * stride + f];
    for (int64_t f = 0; f < width; ++f) pivot[f] /= some;
    sum_pairs<T>(begin, end, width, into, [&](int64_t r, T* __restrict__ first, T* __restrict__ second) {
      const T* __restrict__ row = x + r * stride;
      for (int64_t f = 0; f < width; ++f) {
        const T away = row[f] - pivot[f];
        first[f] += away;
        second[f] += away * away;
      }
    });
  });
  std::fill(mean, mean + width, 0.0);
  std::fill(squares, squares + width, 0.0);
  for (int64_t k = 0; k < chunks; ++k) {
    const double before = k * kChunk, number = std::min(rows - k * kChunk, kChunk), all = before + number;
    const double *first = sums.data() + k * 2 * width, *second = first + width;
    for (int64_t f = 0; f < width; ++f) {
      const double here = pivots[k * width + f] + first[f] / number, away = here - mean[f];
      squares[f] += std::max(second[f] - first[f] * first[f] / number, 0.0) + away * away * before * number / all;
      mean[f] += away * number / all;
    }
  }
}

template <typename T>
void grad_sums(int64_t rows, int64_t width, const T* x, const T* grad, const T* mean, double* total, int threads) {
  const std::vector<double> sums = sum_chunks(rows, width, threads, [&](int64_t begin, int64_t end, double* into) {
    sum_pairs<T>(begin, end, width, into, [&](int64_t r, T* __restrict__ first, T* __restrict__ second) {
      const T *__restrict__ row = x + r * width, *__restrict__ g = grad + r * width;
      for (int64_t f = 0; f < width; ++f) {
        first[f] += g[f];
        second[f] += g[f] * (row[f] - mean[f]);
      }
    });
  });
  std::fill(total, total + 2 * width, 0.0);
  for (size_t at = 0; at < sums.size(); ++at) total[at % (2 * width)] += sums[at];
}

template <typename T>
void centred_grad(int64_t rows, int64_t width, const T* x, const T* grad, const T* columns, T* out, int threads) {
  const T *__restrict__ mean = columns, *__restrict__ by_grad = columns + width;
  const T *__restrict__ by_row = columns + 2 * width, *__restrict__ add = columns + 3 * width;
  for_each(rows, threads, [&](int64_t r) {
    const T *__restrict__ row = x + r * width, *__restrict__ g = grad + r * width;
    T* __restrict__ to = out + r * width;
    for (int64_t f = 0; f < width; ++f) to[f] = by_grad[f] * g[f] + (by_row[f] * (row[f] - mean[f]) + add[f]);
  });
}

}  // namespace
}  // namespace isthmus

// Merges the moments of several workers, group by group. Worker q has for group g a row of `every` [workers, groups,
// 1 + 2 width]: the number of its rows, their means and sums of squared deviations. merged [groups, 1 + 2 width] gets
// number, means and variances of all rows.
ISTHMUS_API void merge_moments(int64_t workers, int64_t groups, int64_t width, const double* every, double* merged) {
  const int64_t size = 1 + 2 * width;
  std::fill(merged, merged + groups * size, 0.0);
  for (int64_t g = 0; g < groups; ++g) {
    double *__restrict__ mean = merged + g * size + 1, *__restrict__ variance = mean + width, number = 0;
    for (int64_t q = 0; q < workers; ++q) number += every[(q * groups + g) * size];
    const double all = std::max(number, 1.0);
    for (int64_t q = 0; q < workers; ++q) {
      const double* __restrict__ row = every + (q * groups + g) * size;
      for (int64_t f = 0; f < width; ++f) mean[f] += row[0] / all * row[1 + f];
    }
    for (int64_t q = 0; q < workers; ++q) {
      const double* __restrict__ row = every + (q * groups + g) * size;
      for (int64_t f = 0; f < width; ++f) {
        const double away = row[1 + f] - mean[f];
        variance[f] += (row[1 + width + f] + row[0] * away * away) / all;
      }
    }
    merged[g * size] = number;
  }
}

#define ISTHMUS_MOMENTS(SUFFIX, T)                                                                                   \
  ISTHMUS_API void column_moments_##SUFFIX(int64_t rows, int64_t width, const T* x, int64_t stride, double* mean,    \
                                           double* squares, int threads) {                                           \
    isthmus::moments(rows, width, x, stride, mean, squares, threads);                                                \
  }                                                                                                                  \
  ISTHMUS_API void norm_grad_sums_##SUFFIX(int64_t rows, int64_t width, const T* x, const T* grad, const T* mean,    \
                                           double* total, int threads) {                                             \
    isthmus::grad_sums(rows, width, x, grad, mean, total, threads);                                                  \
  }                                                                                                                  \
  ISTHMUS_API void norm_grad_##SUFFIX(int64_t rows, int64_t width, const T* x, const T* grad, const T* columns,      \
                                      T* out, int threads) {                                                         \
    isthmus::centred_grad(rows, width, x, grad, columns, out, threads);                                              \
  }

ISTHMUS_MOMENTS(f32, float)
ISTHMUS_MOMENTS(f64, double)
