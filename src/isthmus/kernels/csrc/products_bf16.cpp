// Dense products in bf16, summed in float32, where the processor has instructions for pairs of bf16.
#include <cmath>
#include <memory>

#if defined(__AVX512F__) && (defined(__GNUC__) || defined(__clang__))
#define ISTHMUS_BF16_PRODUCTS
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512bf16"))), apply_to = function)
#else
#pragma GCC target("avx512bf16")
#endif
#endif

#include "products.h"

#ifdef ISTHMUS_BF16_PRODUCTS
namespace isthmus {
namespace {

struct Pairs {
  typedef Bf16 In;
  typedef uint32_t Unit;
  static constexpr int step = 2;

  static uint32_t unit(const Bf16* at) {
    uint32_t pair;
    std::memcpy(&pair, at, sizeof pair);
    return pair;
  }
  static uint32_t unit(const uint32_t* at) { return *at; }
  static void add(V& sum, uint32_t left, const Vector<uint32_t>::type& right) {
    sum = (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)left), (__m512bh)right);
  }

  template <int C>
  static void write(const V (&sum)[C], int64_t width, bool past_caches, Bf16* to) {
    alignas(kCacheLine) Bf16 row[2 * kLanes];
    if (C == 2 && width == 2 * kLanes) {
      const V both = (V)_mm512_cvtne2ps_pbh((__m512)sum[C - 1], (__m512)sum[0]);
      if (past_caches) stream(to, both);
      else std::memcpy(to, &both, sizeof both);
      return;
    }
    for (int c = 0; c < C; ++c) {
      const __m256bh half = _mm512_cvtneps_pbh((__m512)sum[c]);
      std::memcpy(row + c * kLanes, &half, sizeof half);
    }
    std::memcpy(to, row, width * sizeof(Bf16));
  }

  // Pairs of two rows, the second of which may be missing.
  static void join(int64_t width, const Bf16* first, const Bf16* second, uint32_t* __restrict pairs) {
    if (second)
      for (int64_t o = 0; o < width; ++o) pairs[o] = first[o] | (uint32_t)second[o] << 16;
    else
      for (int64_t o = 0; o < width; ++o) pairs[o] = first[o];
  }

  // g of rows r and r + 1 (if it is before the end), and their part in the sums of columns.
  static void take(int64_t width, int64_t r, int64_t end, const Rows<Bf16>& grad, const Bf16* result, Bf16* masked,
                   uint32_t* __restrict g, float* __restrict sums) {
    join(width, grad.at(r), r + 1 < end ? grad.at(r + 1) : nullptr, g);
    if (result) {
      const Bf16 *first = result + r * width, *second = r + 1 < end ? first + width : first;
      for (int64_t o = 0; o < width; ++o)
        g[o] &= (widen(first[o]) > 0 ? 0xffffu : 0) | (widen(second[o]) > 0 ? 0xffff0000u : 0);
    }
    for (int64_t o = 0; o < width; ++o) sums[o] += widen((Bf16)g[o]) + widen((Bf16)(g[o] >> 16));
    for (int64_t k = 0; masked && k < std::min<int64_t>(2, end - r); ++k)
      for (int64_t o = 0; o < width; ++o) masked[(r + k) * width + o] = (Bf16)(g[o] >> (16 * k));
  }

  static int64_t room(int64_t rows, int64_t depth) { return rows / 2 * depth; }
  static const uint32_t* left(const Rows<Bf16>& block, int64_t begin, int64_t end, uint32_t* room, int64_t& along) {
    along = block.depth;
    for (int64_t r = begin; r < end; r += 2)
      join(along, block.at(r), r + 1 < end ? block.at(r + 1) : nullptr, room + (r - begin) / 2 * along);
    return room;
  }
};

}  // namespace
}  // namespace isthmus

ISTHMUS_API int has_bf16_products() { return __builtin_cpu_supports("avx512bf16"); }

// As `product_f32`.
ISTHMUS_API void product_bf16(int64_t n, int64_t width, const isthmus::Bf16* x1, int64_t depth1, int64_t stride1,
                              const isthmus::Bf16* x2, int64_t depth2, int64_t stride2, const isthmus::Bf16* w,
                              int64_t w_row, int64_t w_column, const float* bias, isthmus::Bf16* out,
                              int64_t out_stride, int relu, int threads) {
  using namespace isthmus;
  product<Pairs>(n, width, {{x1, depth1, stride1}, {x2, depth2, stride2}}, w, w_row, w_column, bias, out, out_stride,
                 relu, threads);
}

// As `product_grad_f32`; gradients of weights are float32.
ISTHMUS_API void product_grad_bf16(int64_t n, int64_t width, const isthmus::Bf16* x1, int64_t depth1, int64_t stride1,
                                   const isthmus::Bf16* x2, int64_t depth2, int64_t stride2,
                                   const isthmus::Bf16* grad, int64_t grad_stride, const isthmus::Bf16* result,
                                   float* of_weight, float* of_bias, isthmus::Bf16* masked, int threads) {
  using namespace isthmus;
  product_gradients<Pairs>(n, {{x1, depth1, stride1}, {x2, depth2, stride2}}, {grad, width, grad_stride}, result,
                           of_weight, of_bias, masked, threads);
}
#else
ISTHMUS_API int has_bf16_products() { return 0; }
#endif
#if defined(ISTHMUS_BF16_PRODUCTS) && defined(__clang__)
#pragma clang attribute pop
#endif
