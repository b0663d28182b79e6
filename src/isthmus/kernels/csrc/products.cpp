// Dense products of many rows with a small matrix, and their gradients, in float32.
//
//   out = x w^T (+ bias), then relu if asked          forward, and (with w transposed) the gradient by x
//   of_weight = g^T x,  of_bias = column sums of g    with g = grad where relu let the row's result pass
//
// The small matrix stays in the caches, rows pass through them once: what would be passes of their own over all rows
// (bias, relu, its mask, the sum of a bias's gradient) is done while a block of rows is at hand.
#include <memory>

#include "common.h"

namespace isthmus {
namespace {

typedef Vector<float> F;
typedef F::type V;
constexpr int kLanes = F::lanes;
constexpr int kTall = ISTHMUS_VECTOR_BYTES == 64 ? 14 : ISTHMUS_VECTOR_BYTES == 32 ? 6 : 4;  // of a tile of sums: 2 vectors
                                                                                             // a row, all in registers
constexpr int kPanel = 128;                                 // rows whose gradients are summed at once: they fit into L2
constexpr int kDepth = 256;                                 // columns that are summed at once: long sums would err more

inline void prefetch(const float* from, int64_t count) {
  for (int64_t i = 0; i < count; i += kCacheLine / sizeof(float)) __builtin_prefetch(from + i);
}

inline int64_t vectors_of(int64_t width) { return (width + kLanes - 1) / kLanes; }

// sum[i][c] += sum over p of a[i * across + p * along] * b[p][c], for a tile of R rows and C vectors.
template <int R, int C>
inline void tile(int64_t count, const float* a, int64_t across, int64_t along, const float* b, V (&sum)[R][C]) {
#pragma GCC unroll 4
  for (int64_t p = 0; p < count; ++p) {
    V right[C];
    for (int c = 0; c < C; ++c) right[c] = load(b + (p * C + c) * kLanes);
    for (int i = 0; i < R; ++i) {
      const float left = a[i * across + p * along];
      for (int c = 0; c < C; ++c) sum[i][c] += left * right[c];
    }
  }
}

// A matrix in strips of two vectors of columns (the last may have one), each row by row, zeros behind the last column.
struct Strips {
  int64_t depth, width;
  std::unique_ptr<float[]> values;
  Strips(int64_t depth, int64_t width) : depth(depth), width(width), values(new float[depth * vectors_of(width) * kLanes + kLanes]()) {}
  const float* strip(int64_t vector) const { return values.get() + vector * depth * kLanes; }
  int vectors(int64_t vector) const { return vector + 1 < vectors_of(width) ? 2 : 1; }
  float* at(int64_t row, int64_t column) {
    const int64_t vector = column / (2 * kLanes) * 2;
    return values.get() + vector * depth * kLanes + row * vectors(vector) * kLanes + column - vector * kLanes;
  }
};

struct Product {
  int64_t depth, x_stride, out_stride;
  const float* bias;
  bool accumulate, relu;
  const Strips& right;
};

template <int R, int C>
void product_tile(const Product& task, const float* x, int64_t vector, float* out) {
  V sum[R][C] = {};
  tile<R, C>(std::min<int64_t>(kDepth, task.depth), x, task.x_stride, 1, task.right.strip(vector), sum);
  for (int64_t p = kDepth; p < task.depth; p += kDepth) {
    V part[R][C] = {};
    tile<R, C>(std::min<int64_t>(kDepth, task.depth - p), x + p, task.x_stride, 1, task.right.strip(vector) + p * C * kLanes, part);
    for (int i = 0; i < R; ++i)
      for (int c = 0; c < C; ++c) sum[i][c] += part[i][c];
  }
  const int64_t column = vector * kLanes, width = std::min<int64_t>(C * kLanes, task.right.width - column);
  alignas(kCacheLine) float row[C * kLanes], bias[C * kLanes] = {};
  if (task.bias) std::memcpy(bias, task.bias + column, width * sizeof(float));
  const V zero = {};
  for (int i = 0; i < R; ++i) {
    float* to = out + i * task.out_stride + column;
    if (task.accumulate) std::memcpy(row, to, width * sizeof(float));
    for (int c = 0; c < C; ++c) {
      V value = sum[i][c] + load(bias + c * kLanes);
      if (task.accumulate) value += load(row + c * kLanes);
      if (task.relu) value = value > zero || value != value ? value : zero;
      if (width == C * kLanes) store(to + c * kLanes, value);
      else store(row + c * kLanes, value);
    }
    if (width < C * kLanes) std::memcpy(to, row, width * sizeof(float));
  }
}

template <int R>
void product_rows(int64_t rows, const Product& task, const float* x, float* out) {
  if constexpr (R > 1)
    if (rows < R) return product_rows<R - 1>(rows, task, x, out);
  const int64_t vectors = vectors_of(task.right.width), share = R * task.x_stride * 2 / vectors;
  for (int64_t v = 0; v < vectors; v += 2) {
    prefetch(x + R * task.x_stride + v / 2 * share, share);  // of the rows that are next
    if (task.right.vectors(v) == 2) product_tile<R, 2>(task, x, v, out);
    else product_tile<R, 1>(task, x, v, out);
  }
}

// row = grad where relu passed, and is added to the sums.
inline void take_row(int64_t width, const float* grad, const float* passed, float* __restrict row, float* __restrict sums) {
  if (!passed) std::memcpy(row, grad, width * sizeof(float));
  else
    for (int64_t o = 0; o < width; ++o) row[o] = passed[o] > 0 ? grad[o] : 0;
  for (int64_t o = 0; o < width; ++o) sums[o] += row[o];
}

inline void copy_row(int64_t row, const float* from, Strips& to) {
  int64_t k = 0;
  for (; k + 2 * kLanes <= to.width; k += 2 * kLanes) std::memcpy(to.at(row, k), from + k, 2 * kLanes * sizeof(float));
  if (k < to.width) std::memcpy(to.at(row, k), from + k, (to.width - k) * sizeof(float));
}

// of_weight[o:o+R] += (columns o:o+R of g)^T x, for a panel of rows; g has R values for each row.
template <int R>
void weight_rows(int64_t few, int64_t rows, const float* g, const Strips& x, float* of_weight) {
  if constexpr (R > 1)
    if (few < R) return weight_rows<R - 1>(few, rows, g, x, of_weight);
  const int64_t stride = vectors_of(x.width) * kLanes;
  const auto add = [&](auto columns, int64_t v) {
    constexpr int C = decltype(columns)::value;
    V sum[R][C] = {};
    tile<R, C>(rows, g, 1, R, x.strip(v), sum);
    for (int i = 0; i < R; ++i)
      for (int c = 0; c < C; ++c) {
        float* to = of_weight + i * stride + (v + c) * kLanes;
        store(to, load(to) + sum[i][c]);
      }
  };
  for (int64_t v = 0; v < vectors_of(x.width); v += 2)
    if (x.vectors(v) == 2) add(std::integral_constant<int, 2>(), v);
    else add(std::integral_constant<int, 1>(), v);
}

}  // namespace
}  // namespace isthmus

// out [n, width] (+)= x [n, depth] times the transpose of w (width rows of depth values, any strides), + bias; relu.
ISTHMUS_API void product_f32(int64_t n, int64_t depth, int64_t width, const float* x, int64_t x_stride, const float* w,
                             int64_t w_row, int64_t w_column, const float* bias, float* out, int64_t out_stride,
                             int accumulate, int relu, int threads) {
  using namespace isthmus;
  if (n == 0 || width == 0) return;
  Strips right(depth, width);
  for (int64_t o = 0; o < width; ++o)
    for (int64_t k = 0; k < depth; ++k) *right.at(k, o) = w[o * w_row + k * w_column];
  const Product task{depth, x_stride, out_stride, bias, accumulate != 0, relu != 0, right};
  for_chunks(n, threads, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row += kTall)
      product_rows<kTall>(std::min<int64_t>(kTall, last - row), task, x + row * x_stride, out + row * out_stride);
  });
}

// of_weight [width, depth] = g^T x and of_bias [width] = column sums of g (each if given), where g [n, width] is grad, or
// with `result` [n, width]: grad where that is positive, else 0. `masked` (if given, [n, width]) receives g.
ISTHMUS_API void product_grad_f32(int64_t n, int64_t depth, int64_t width, const float* grad, int64_t grad_stride,
                                  const float* result, const float* x, int64_t x_stride, float* of_weight,
                                  float* of_bias, float* masked, int threads) {
  using namespace isthmus;
  if (width == 0) return;
  const int64_t wide = vectors_of(depth) * kLanes, tall = vectors_of(width) * kLanes, size = width * wide + tall;
  const int64_t tiles = (width + kTall - 1) / kTall, high = (width + tiles - 1) / tiles;
  const int64_t region = kPanel * high + kLanes;
  std::unique_ptr<float[]> sums(new float[size * threads]());
  for_chunks(n, threads, [&](int64_t first, int64_t last) {
#ifdef _OPENMP
    float* of_w = sums.get() + size * omp_get_thread_num();
#else
    float* of_w = sums.get();
#endif
    float* of_b = of_w + width * wide;
    Strips rows(kPanel, depth);
    std::unique_ptr<float[]> g(new float[tiles * region]), row(new float[width + kLanes]()), of_panel(new float[width]);
    for (int64_t begin = first; begin < last; begin += kPanel) {
      const int64_t count = std::min<int64_t>(kPanel, last - begin), next = std::min(begin + kPanel, last);
      std::fill_n(of_panel.get(), width, 0.0f);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t at = begin + r;
        take_row(width, grad + at * grad_stride, result ? result + at * width : nullptr, row.get(), of_panel.get());
        if (masked) std::memcpy(masked + at * width, row.get(), width * sizeof(float));
        if (!of_weight) continue;
        for (int64_t o = 0; o < width; o += high)  // what is written too much is overwritten, or never read
          store(g.get() + o / high * region + r * std::min(high, width - o), load(row.get() + o));
        copy_row(r, x + at * x_stride, rows);
      }
      for (int64_t o = 0; o < width; ++o) of_b[o] += of_panel[o];
      for (int64_t o = 0; of_weight && o < width; o += high) {
        const int64_t from = next + o * kPanel / width, few = std::min<int64_t>(high * kPanel / width + 1, last - from);
        for (int64_t at = from; at < from + few; ++at) {  // of the panel that is next
          prefetch(grad + at * grad_stride, width);
          if (result) prefetch(result + at * width, width);
          prefetch(x + at * x_stride, depth);
        }
        weight_rows<kTall>(std::min(high, width - o), count, g.get() + o / high * region, rows, of_w + o * wide);
      }
    }
  });
  for (int64_t o = 0; o < width; ++o) {
    for (int64_t k = 0; of_weight && k < depth; ++k) {
      float sum = 0;
      for (int t = 0; t < threads; ++t) sum += sums[size * t + o * wide + k];
      of_weight[o * depth + k] = sum;
    }
    float sum = 0;
    for (int t = 0; t < threads; ++t) sum += sums[size * t + width * wide + o];
    if (of_bias) of_bias[o] = sum;
  }
}
