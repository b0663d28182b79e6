// Dense products of many rows with a small matrix, and their gradients.
//
//   out = [x_1 | x_2] w^T (+ bias), then relu if asked      forward, and (with w transposed) the gradient by x
//   of_weight = g^T [x_1 | x_2],  of_bias = column sums of g    with g = grad where relu let the row's result pass
//
// The small matrix stays in the caches, rows pass through them once and are read where they lie: what would be passes of
// their own over all rows (bias, relu, its mask, the sum of a bias's gradient) is done while a block of rows is at hand.
//
// A `Kind` says what is multiplied. The depth of a product goes by units: one float32, or a pair of bf16, for which
// there are instructions. Sums are float32.
#pragma once

#include <memory>

#include "common.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace isthmus {

typedef Vector<float>::type V;
constexpr int kLanes = Vector<float>::lanes;
constexpr int kTall = ISTHMUS_VECTOR_BYTES == 64 ? 14 : ISTHMUS_VECTOR_BYTES == 32 ? 6 : 4;  // of a tile of sums: 2 vectors
                                                                                             // a row, all in registers
constexpr int64_t kPanel = 256;                 // rows whose gradients are summed at once: they fit into L2
constexpr int64_t kDepth = 256;                 // columns that are summed at once: long sums would err more
constexpr int64_t kBeyondCaches = 16ll << 20;   // bytes of a result that no cache holds until it is read

inline int64_t vectors_of(int64_t width) { return (width + kLanes - 1) / kLanes; }

// Lines that are asked for one by one, every 2^shift units, while something else is computed.
struct Lines {
  const char* from;
  int shift;
};

// sum[i][c] += sum over p of a[i * across + p * along] * b[p * b_along + c], for a tile of R rows and C vectors.
template <typename Kind, int R, int C, typename Left>
inline void tile(int64_t count, const Left* a, int64_t across, int64_t along, const typename Kind::Unit* b, int64_t b_along,
                 V (&sum)[R][C], Lines next = {nullptr, 0}) {
#pragma GCC unroll 4
  for (int64_t p = 0; p < count; ++p) {
    if (next.from) __builtin_prefetch(next.from + (p >> next.shift) * kCacheLine, 0, 2);
    typename Vector<typename Kind::Unit>::type right[C];
    for (int c = 0; c < C; ++c) right[c] = load(b + p * b_along + c * kLanes);
    for (int i = 0; i < R; ++i) {
      const auto left = Kind::unit(a + i * across + p * along);
      for (int c = 0; c < C; ++c) Kind::add(sum[i][c], left, right[c]);
    }
  }
}

// Rows of one matrix.
template <typename T>
struct Rows {
  const T* x;
  int64_t depth, stride;
  const T* at(int64_t row) const { return x + row * stride; }
};

// Writes past the caches: lines that are overwritten as a whole need not be read first.
#if !defined(__SSE2__)
inline void stream(void* to, V value) { std::memcpy(to, &value, sizeof value); }
inline void finish_streams() {}
#else
inline void stream(void* to, V value) {
#if ISTHMUS_VECTOR_BYTES == 64
  _mm512_stream_ps((float*)to, (__m512)value);
#elif ISTHMUS_VECTOR_BYTES == 32
  _mm256_stream_ps((float*)to, (__m256)value);
#else
  _mm_stream_ps((float*)to, (__m128)value);
#endif
}
inline void finish_streams() { _mm_sfence(); }
#endif

// The transpose of w in strips of two vectors of columns (the last may have one), each unit by unit, zeros behind the
// last column. Each block of rows begins with a unit of its own.
template <typename Kind>
struct Strips {
  typedef typename Kind::Unit Unit;
  int64_t depth, width;  // in units
  std::unique_ptr<Unit[]> values;

  Strips(const int64_t (&depths)[2], int64_t width, const typename Kind::In* w, int64_t w_row, int64_t w_column)
      : depth(units(depths[0]) + units(depths[1])), width(width), values(new Unit[depth * vectors_of(width) * kLanes]()) {
    for (int64_t o = 0; o < width; ++o) {
      const int64_t vector = o / (2 * kLanes) * 2, across = vectors(vector) * kLanes;
      auto* to = (typename Kind::In*)(values.get() + vector * depth * kLanes + o - vector * kLanes);
      const auto* from = w + o * w_row;
      for (int b = 0; b < 2; from += depths[b] * w_column, to += units(depths[b]) * across * Kind::step, ++b)
        for (int64_t k = 0; k < depths[b]; ++k)
          to[k / Kind::step * across * Kind::step + k % Kind::step] = from[k * w_column];
    }
  }
  static int64_t units(int64_t columns) { return (columns + Kind::step - 1) / Kind::step; }
  const Unit* strip(int64_t vector) const { return values.get() + vector * depth * kLanes; }
  int vectors(int64_t vector) const { return vector + 1 < vectors_of(width) ? 2 : 1; }
};

template <typename Kind>
struct Product {
  typedef typename Kind::In In;
  Rows<In> blocks[2];
  int64_t out_stride;
  const float* bias;
  bool relu, past_caches;
  const Strips<Kind>& right;

  template <int R, int C>
  void tiles(int64_t row, int64_t vector, In* out) const {
    V sum[R][C] = {}, total[R][C] = {};
    int64_t filled = 0;
    const auto* b = right.strip(vector);
    for (const Rows<In>& block : blocks) {
      const In* x = block.at(row);
      for (int64_t k = 0; k + Kind::step <= block.depth;) {
        const int64_t count = std::min(kDepth, block.depth - k) / Kind::step;
        if (filled + count * Kind::step > kDepth) {
          for (int i = 0; i < R; ++i)
            for (int c = 0; c < C; ++c) total[i][c] += sum[i][c], sum[i][c] = V{};
          filled = 0;
        }
        tile<Kind, R, C>(count, x + k, block.stride, Kind::step, b, C * kLanes, sum, next<R>(block, row, vector, k));
        b += count * C * kLanes, k += count * Kind::step, filled += count * Kind::step;
      }
      if (block.depth % Kind::step) {  // half a unit is left: what is behind it belongs to others
        In last[R * Kind::step] = {};
        for (int i = 0; i < R; ++i) last[i * Kind::step] = x[i * block.stride + block.depth - 1];
        tile<Kind, R, C>(1, last, Kind::step, 0, b, 0, sum);
        b += C * kLanes;
      }
    }
    const int64_t column = vector * kLanes, width = std::min<int64_t>(C * kLanes, right.width - column);
    alignas(kCacheLine) float of_bias[C * kLanes] = {};
    if (bias) std::memcpy(of_bias, bias + column, width * sizeof(float));
    const V zero = {};
    for (int i = 0; i < R; ++i) {
      for (int c = 0; c < C; ++c) {
        V value = sum[i][c] + total[i][c] + load(of_bias + c * kLanes);
        sum[i][c] = relu ? (value > zero || value != value ? value : zero) : value;
      }
      Kind::template write<C>(sum[i], width, past_caches, out + (row + i) * out_stride + column);
    }
  }

  // Each strip asks for its share of the rows that are next, from column k on.
  template <int R>
  Lines next(const Rows<In>& block, int64_t row, int64_t vector, int64_t k) const {
    const int64_t strips = (vectors_of(right.width) + 1) / 2;
    const int64_t share = R * block.stride * (int64_t)sizeof(In) / strips / kCacheLine + 1;
    int shift = 0;
    while ((block.depth / Kind::step >> (shift + 1)) >= share) ++shift;
    const int64_t line = vector / 2 * share + (k / Kind::step >> shift);
    return {(const char*)block.at(row + R) + line * kCacheLine, shift};
  }

  template <int R>
  void rows(int64_t row, int64_t last, In* out) const {
    if constexpr (R > 1)
      if (last - row < R) return rows<R - 1>(row, last, out);
    const int64_t vectors = vectors_of(right.width);
    for (int64_t v = 0; v < vectors; v += 2)
      if (right.vectors(v) == 2) tiles<R, 2>(row, v, out);
      else tiles<R, 1>(row, v, out);
  }
};

template <typename Kind>
void product(int64_t n, int64_t width, const Rows<typename Kind::In> (&blocks)[2], const typename Kind::In* w, int64_t w_row,
             int64_t w_column, const float* bias, typename Kind::In* out, int64_t out_stride, int relu, int threads) {
  if (n == 0 || width == 0) return;
  const int64_t line = kCacheLine / sizeof(*out);
  const bool lines = out_stride % line == 0 && width % line == 0 && (uintptr_t)out % kCacheLine == 0;
  const bool past_caches = lines && n * out_stride * (int64_t)sizeof(*out) >= kBeyondCaches;
  const Strips<Kind> right({blocks[0].depth, blocks[1].depth}, width, w, w_row, w_column);
  const Product<Kind> task{{blocks[0], blocks[1]}, out_stride, bias, relu != 0, past_caches, right};
  for_chunks(n, threads, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row += kTall) task.template rows<kTall>(row, last, out);
    if (past_caches) finish_streams();
  });
}

// Sums g^T x over panels of rows, in one thread.
template <typename Kind>
struct Gradients {
  typedef typename Kind::In In;
  typedef typename Kind::Unit Unit;
  Rows<In> blocks[2], grad;
  const In* result;  // or null
  In* masked;        // or null
  float* of_weight;  // [depth, wide], transposed; or null
  float* of_bias;    // [wide]

  void sum(int64_t first, int64_t last) const {
    const int64_t width = grad.depth, wide = vectors_of(width) * kLanes, stride = wide + kLanes;  // no power of two
    const int64_t depth = blocks[0].depth + blocks[1].depth;
    std::unique_ptr<Unit[]> g(new Unit[kPanel / Kind::step * stride]()), room(new Unit[Kind::room(kPanel, depth)]);
    std::unique_ptr<float[]> of_panel(new float[wide]);
    for (int64_t begin = first; begin < last; begin += kPanel) {
      const int64_t end = std::min(begin + kPanel, last), units = (end - begin + Kind::step - 1) / Kind::step;
      std::fill_n(of_panel.get(), wide, 0.0f);
      for (int64_t r = begin; r < end; r += Kind::step)
        Kind::take(width, r, end, grad, result, masked, g.get() + (r - begin) / Kind::step * stride, of_panel.get());
      for (int64_t o = 0; o < wide; ++o) of_bias[o] += of_panel[o];
      if (!of_weight) continue;
      int64_t done = 0;
      for (const Rows<In>& block : blocks) {
        if (!block.depth) continue;
        int64_t along;
        const Unit* x = Kind::left(block, begin, end, room.get(), along);
        const int64_t tiles = (block.depth + kTall - 1) / kTall, high = (block.depth + tiles - 1) / tiles;
        for (int64_t k = 0; k < block.depth; k += high) {
          const int64_t few = std::min(high, block.depth - k);
          columns<kTall>(few, units, x + k, along, g.get(), stride, of_weight + done * wide, {end, std::min(end + kPanel, last), done});
          done += few;
        }
      }
    }
  }

 private:
  struct Ahead {  // the rows of the panel that is next, and the columns that are done
    int64_t begin, end, done;
  };

  // Each tile asks for its share of the lines that the next panel reads: all rows of one matrix, then those of another.
  Lines next(const Ahead& ahead, int64_t few, int64_t vector, int64_t vectors, int64_t units) const {
    const Rows<In> read[] = {grad, {result, result ? grad.depth : 0, grad.depth}, blocks[0], blocks[1]};
    int64_t lines = 0, each[4];
    for (int m = 0; m < 4; ++m) {
      each[m] = read[m].depth ? (ahead.end - ahead.begin) * read[m].stride * (int64_t)sizeof(In) / kCacheLine : 0;
      lines += each[m];
    }
    const int64_t all = (blocks[0].depth + blocks[1].depth) * vectors, share = lines * 2 * few / all + 1;
    int64_t line = lines * (ahead.done * vectors + vector * few) / all;
    int shift = 0;
    while ((units >> (shift + 1)) >= share) ++shift;
    for (int m = 0; m < 4; line -= each[m++])
      if (line < each[m]) return {(const char*)read[m].at(ahead.begin) + line * kCacheLine, shift};
    return {nullptr, 0};
  }

  // of_columns[i] += sum over p of x[i + p * along] g[p], for a few columns of x.
  template <int R>
  void columns(int64_t few, int64_t units, const Unit* x, int64_t along, const Unit* g, int64_t stride, float* of_columns,
               Ahead ahead) const {
    if constexpr (R > 1)
      if (few < R) return columns<R - 1>(few, units, x, along, g, stride, of_columns, ahead);
    const int64_t vectors = vectors_of(grad.depth);
    const auto add = [&](auto count, int64_t v) {
      constexpr int C = decltype(count)::value;
      V sum[R][C] = {};
      tile<Kind, R, C>(units, x, 1, along, g + v * kLanes, stride, sum, next(ahead, R, v, vectors, units));
      for (int i = 0; i < R; ++i)
        for (int c = 0; c < C; ++c) {
          float* to = of_columns + (i * vectors + v + c) * kLanes;
          store(to, load(to) + sum[i][c]);
        }
    };
    for (int64_t v = 0; v < vectors; v += 2)
      if (v + 1 < vectors) add(std::integral_constant<int, 2>(), v);
      else add(std::integral_constant<int, 1>(), v);
  }
};

// of_weight [width, depth] and of_bias [width], each if given; `masked` (if given, [n, width]) receives g.
template <typename Kind>
void product_gradients(int64_t n, const Rows<typename Kind::In> (&blocks)[2], const Rows<typename Kind::In>& grad,
                       const typename Kind::In* result, float* of_weight, float* of_bias, typename Kind::In* masked,
                       int threads) {
  const int64_t width = grad.depth, depth = blocks[0].depth + blocks[1].depth, wide = vectors_of(width) * kLanes;
  if (width == 0) return;
  const int64_t size = (depth + 1) * wide;
  std::unique_ptr<float[]> sums(new float[size * threads]());
  for_chunks(n, threads, [&](int64_t first, int64_t last) {
#ifdef _OPENMP
    float* mine = sums.get() + size * omp_get_thread_num();
#else
    float* mine = sums.get();
#endif
    Gradients<Kind>{{blocks[0], blocks[1]}, grad, result, masked, of_weight ? mine + wide : nullptr, mine}.sum(first, last);
  });
  for (int64_t t = 1; t < threads; ++t)
    for (int64_t i = 0; i < size; ++i) sums[i] += sums[size * t + i];
  if (of_bias) std::copy_n(sums.get(), width, of_bias);
  for (int64_t o = 0; of_weight && o < width; ++o)
    for (int64_t k = 0; k < depth; ++k) of_weight[o * depth + k] = sums[(k + 1) * wide + o];
}

}  // namespace isthmus
