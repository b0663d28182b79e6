// Dense products in float32.
#include "products.h"

namespace isthmus {
namespace {

struct Singles {
  typedef float In;
  typedef float Unit;
  static constexpr int step = 1;

  static float unit(const float* at) { return *at; }
  static void add(V& sum, float left, const V& right) { sum += left * right; }

  template <int C>
  static void write(const V (&sum)[C], int64_t width, bool past_caches, float* to) {
    if (width == C * kLanes) {
      for (int c = 0; c < C; ++c)
        if (past_caches) stream(to + c * kLanes, sum[c]);
        else store(to + c * kLanes, sum[c]);
      return;
    }
    std::memcpy(to, sum, width * sizeof(float));
  }

  // g of row r, and its part in the sums of columns.
  static void take(int64_t width, int64_t r, int64_t, const Rows<float>& grad, const float* result, float* masked,
                   float* __restrict g, float* __restrict sums) {
    const float *row = grad.at(r), *passed = result ? result + r * width : nullptr;
    if (passed)
      for (int64_t o = 0; o < width; ++o) g[o] = passed[o] > 0 ? row[o] : 0;
    else
      for (int64_t o = 0; o < width; ++o) g[o] = row[o];
    for (int64_t o = 0; o < width; ++o) sums[o] += g[o];
    if (masked) std::memcpy(masked + r * width, g, width * sizeof(float));
  }

  // Rows are multiplied where they are.
  static int64_t room(int64_t, int64_t) { return 0; }
  static const float* left(const Rows<float>& block, int64_t begin, int64_t, float*, int64_t& along) {
    along = block.stride;
    return block.at(begin);
  }
};

}  // namespace
}  // namespace isthmus

// out [n, width] = [x_1 | x_2] times the transpose of w (width rows, any strides), + bias; relu. Depths may be 0.
ISTHMUS_API void product_f32(int64_t n, int64_t width, const float* x1, int64_t depth1, int64_t stride1, const float* x2,
                             int64_t depth2, int64_t stride2, const float* w, int64_t w_row, int64_t w_column,
                             const float* bias, float* out, int64_t out_stride, int relu, int threads) {
  using namespace isthmus;
  product<Singles>(n, width, {{x1, depth1, stride1}, {x2, depth2, stride2}}, w, w_row, w_column, bias, out, out_stride,
                   relu, threads);
}

// of_weight [width, depth1 + depth2] = g^T [x_1 | x_2] and of_bias [width] = column sums of g (each if given), where
// g [n, width] is grad, or with `result` [n, width]: grad where that is positive, else 0. `masked` (if given) receives g.
ISTHMUS_API void product_grad_f32(int64_t n, int64_t width, const float* x1, int64_t depth1, int64_t stride1,
                                  const float* x2, int64_t depth2, int64_t stride2, const float* grad,
                                  int64_t grad_stride, const float* result, float* of_weight, float* of_bias,
                                  float* masked, int threads) {
  using namespace isthmus;
  product_gradients<Singles>(n, {{x1, depth1, stride1}, {x2, depth2, stride2}}, {grad, width, grad_stride}, result,
                             of_weight, of_bias, masked, threads);
}
