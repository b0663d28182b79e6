// out[t_r] (+)= row_scale[t_r] * ( self * scale_r x[r]  +  sum_e scale_e x[indices[e]] ),  e in row r of a CSR
//
// with t_r = targets[r] (or r), scale_e = edge_weight[e] * col_scale[indices[e]] and scale_r = col_scale[r], where a
// weight or scale that is not given is 1.
//
// The sums of up to eight registers of features stay in registers over a whole row of edges; rows that will be
// needed a few edges later are prefetched. bf16 rows are summed in fp32; the result is that, or bf16 again.
#include "common.h"

namespace isthmus {
namespace {

constexpr int kAhead = 12;     // edges between prefetch and use
constexpr int kRegisters = 8;  // vectors of sums held at once

enum class Scale { none, column, edge, both };

template <typename Sum>
struct Scales {
  const Sum* edge;
  const Sum* column;
};

struct Task {
  const int64_t* indptr;
  const int32_t* indices;
  const int32_t* targets;
  int64_t width, x_stride, out_stride;
  bool add_self, accumulate;
  int64_t edges;
};

// Rows of T summed in T.
template <typename T>
struct Plain {
  typedef T In;
  typedef T Sum;
  typedef T Out;
  static constexpr int step = Vector<T>::lanes;  // features per unit
  static constexpr int vectors = 1;              // registers per unit
  typedef typename Vector<T>::type V;
  static inline void add(V* sum, const T* x) { sum[0] += load(x); }
  static inline void add(V* sum, const T* x, T scale) { sum[0] += scale * load(x); }
  static inline void unpack(const V* sum, T* out) { store(out, sum[0]); }
  static inline void write(const V* sum, T* out) { store(out, sum[0]); }
};

// Rows of bf16 summed in fp32. A 32-bit lane holds two neighbouring features: the even one is its low half moved up,
// the odd one its high half as it stands, so one load feeds two registers without a shuffle.
struct Half {
  typedef Bf16 In;
  typedef float Sum;
  typedef float Out;
  static constexpr int step = 2 * Vector<float>::lanes;
  static constexpr int vectors = 2;
  typedef Vector<float>::type V;
  typedef Vector<uint32_t>::type U;
  static inline U bits(const Bf16* x) {
    U value;
    std::memcpy(&value, x, sizeof value);
    return value;
  }
  static inline V even(U b) { return (V)(b << 16); }
  static inline V odd(U b) { return (V)(b & 0xffff0000u); }
  static inline void add(V* sum, const Bf16* x) {
    const U b = bits(x);
    sum[0] += even(b);
    sum[1] += odd(b);
  }
  static inline void add(V* sum, const Bf16* x, float scale) {
    const U b = bits(x);
    sum[0] += scale * even(b);
    sum[1] += scale * odd(b);
  }
  static inline void unpack(const V* sum, float* out) {
    for (int i = 0; i < Vector<float>::lanes; ++i) {
      out[2 * i] = sum[0][i];
      out[2 * i + 1] = sum[1][i];
    }
  }
  static inline void write(const V* sum, float* out) { unpack(sum, out); }
};

// The same, with sums rounded to bf16 when a row is done.
template <typename Rows>
struct Rounded : Rows {
  typedef Bf16 Out;
  typedef Vector<uint32_t>::type U;
  // The upper half of each lane is `narrow` of a sum.
  static inline U rounded(const typename Rows::V& sum) {
    const U bits = (U)sum, up = bits + 0x7fffu + (bits >> 16 & 1u), nan = U{} + 0x7fc00000u;
    return sum == sum ? up : nan;
  }
  static inline void write(const typename Rows::V* sum, Bf16* out) {
    if constexpr (Rows::vectors == 2) {
      const U both = rounded(sum[0]) >> 16 | (rounded(sum[1]) & 0xffff0000u);
      std::memcpy(out, &both, sizeof both);
    } else {
      const U lanes = rounded(sum[0]) >> 16;
      for (int i = 0; i < Rows::step; ++i) out[i] = (Bf16)lanes[i];
    }
  }
};

template <Scale S, typename Sum>
inline Sum scale_of(Scales<Sum> scale, int64_t edge, int32_t column) {
  if (S == Scale::both) return scale.edge[edge] * scale.column[column];
  return S == Scale::edge ? scale.edge[edge] : scale.column[column];
}

template <Scale S, typename Sum>
inline Sum scale_of_self(Scales<Sum> scale, int64_t row) {
  return S == Scale::column || S == Scale::both ? scale.column[row] : Sum(1);
}

// Sums `Units` units of features beginning at `from`; the last unit begins at `last` and may overlap the one before it,
// so that no width needs a scalar tail. Only features from `fresh` on are written by that last unit.
template <typename Rows, Scale S, int Units>
inline void sum_units(const Task& task, int64_t row, int64_t from, int64_t last, int64_t fresh, const typename Rows::In* x,
                      Scales<typename Rows::Sum> scale, typename Rows::Sum row_scale, typename Rows::Out* out) {
  typedef typename Rows::Sum Sum;
  typename Rows::V sum[Units * Rows::vectors] = {};
  const int64_t begin = task.indptr[row], end = task.indptr[row + 1];
  const int64_t lines_end = (last - from + Rows::step) * (int64_t)sizeof(typename Rows::In);
  auto add = [&](const typename Rows::In* x_row, Sum s) {
#pragma GCC unroll 8
    for (int u = 0; u < Units; ++u) {
      const int64_t at = u == Units - 1 ? last : from + u * Rows::step;
      if (S == Scale::none) Rows::add(sum + u * Rows::vectors, x_row + at);
      else Rows::add(sum + u * Rows::vectors, x_row + at, s);
    }
  };
  if (task.add_self) add(x + row * task.x_stride, scale_of_self<S>(scale, row));
  for (int64_t e = begin; e < end; ++e) {
    const int64_t soon = std::min(e + kAhead, task.edges - 1);
    const char* ahead = reinterpret_cast<const char*>(x + task.indices[soon] * task.x_stride + from);
    for (int64_t byte = 0; byte < lines_end; byte += kCacheLine) __builtin_prefetch(ahead + byte);
    const int32_t column = task.indices[e];
    add(x + column * task.x_stride, S == Scale::none ? Sum(1) : scale_of<S>(scale, e, column));
  }
  for (int u = 0; u < Units; ++u) {
    alignas(kCacheLine) Sum unit[Rows::step];
    for (int v = 0; v < Rows::vectors; ++v) sum[u * Rows::vectors + v] *= row_scale;
    const int64_t at = u == Units - 1 ? last : from + u * Rows::step;
    if (!task.accumulate) {  // what two units have in common is the same in both
      Rows::write(sum + u * Rows::vectors, out + at);
      continue;
    }
    Rows::unpack(sum + u * Rows::vectors, unit);
    const int64_t skip = u == Units - 1 ? fresh - last : 0;
    for (int64_t i = skip; i < Rows::step; ++i) narrow(widen(out[at + i]) + unit[i], out[at + i]);
  }
}

template <typename Rows, Scale S>
inline void sum_narrow(const Task& task, int64_t row, int64_t from, const typename Rows::In* x, Scales<typename Rows::Sum> scale,
                       typename Rows::Sum row_scale, typename Rows::Out* out) {
  typedef typename Rows::Sum Sum;
  Sum sum[Rows::step] = {};
  const int64_t width = task.width - from;
  if (task.add_self)
    for (int64_t f = 0; f < width; ++f)
      sum[f] += scale_of_self<S>(scale, row) * widen(x[row * task.x_stride + from + f]);
  for (int64_t e = task.indptr[row]; e < task.indptr[row + 1]; ++e) {
    const int32_t column = task.indices[e];
    const Sum s = S == Scale::none ? Sum(1) : scale_of<S>(scale, e, column);
    for (int64_t f = 0; f < width; ++f) sum[f] += s * widen(x[column * task.x_stride + from + f]);
  }
  for (int64_t f = 0; f < width; ++f)
    narrow((task.accumulate ? widen(out[from + f]) : Sum(0)) + row_scale * sum[f], out[from + f]);
}

template <typename Rows, Scale S, int Units>
inline void dispatch(int units, const Task& task, int64_t row, int64_t from, int64_t last, int64_t fresh,
                     const typename Rows::In* x, Scales<typename Rows::Sum> scale, typename Rows::Sum row_scale,
                     typename Rows::Out* out) {
  if constexpr (Units > 1)
    if (units < Units) return dispatch<Rows, S, Units - 1>(units, task, row, from, last, fresh, x, scale, row_scale, out);
  sum_units<Rows, S, Units>(task, row, from, last, fresh, x, scale, row_scale, out);
}

template <typename Rows, Scale S>
void run(const Task& task, int64_t rows, const typename Rows::In* x, Scales<typename Rows::Sum> scale,
         const typename Rows::Sum* row_scale, typename Rows::Out* out, int threads) {
  typedef typename Rows::Sum Sum;
  constexpr int kUnits = kRegisters / Rows::vectors;
  const int64_t width = task.width;
  for_row_chunks(task.indptr, rows, threads, [&](int64_t first, int64_t stop) {
    for (int64_t row = first; row < stop; ++row) {
      const int64_t target = task.targets ? task.targets[row] : row;
      typename Rows::Out* out_row = out + target * task.out_stride;
      const Sum r = row_scale ? row_scale[target] : Sum(1);
      if (width < Rows::step) {
        sum_narrow<Rows, S>(task, row, 0, x, scale, r, out_row);
        continue;
      }
      const int64_t units = (width + Rows::step - 1) / Rows::step;
      for (int64_t unit = 0; unit < units; unit += kUnits) {
        const int now = (int)std::min<int64_t>(kUnits, units - unit);
        const int64_t fresh = (unit + now - 1) * Rows::step;
        const int64_t last = std::min(fresh, width - Rows::step);
        dispatch<Rows, S, kUnits>(now, task, row, unit * Rows::step, last, fresh, x, scale, r, out_row);
      }
    }
  });
}

template <typename Rows>
void aggregate(int64_t rows, const int64_t* indptr, const int32_t* indices, const int32_t* targets,
               const typename Rows::In* x, int64_t width, int64_t x_stride, const typename Rows::Sum* edge_weight,
               const typename Rows::Sum* col_scale, const typename Rows::Sum* row_scale, typename Rows::Out* out,
               int64_t out_stride, int add_self, int accumulate, int threads) {
  if (rows == 0 || width == 0) return;
  const Task task{indptr, indices, targets, width, x_stride, out_stride, add_self != 0, accumulate != 0, indptr[rows]};
  const Scales<typename Rows::Sum> scale{edge_weight, col_scale};
  if (edge_weight && col_scale) run<Rows, Scale::both>(task, rows, x, scale, row_scale, out, threads);
  else if (edge_weight) run<Rows, Scale::edge>(task, rows, x, scale, row_scale, out, threads);
  else if (col_scale) run<Rows, Scale::column>(task, rows, x, scale, row_scale, out, threads);
  else run<Rows, Scale::none>(task, rows, x, scale, row_scale, out, threads);
}

}  // namespace
}  // namespace isthmus

#define ISTHMUS_AGGREGATE(NAME, ROWS)                                                                                 \
  ISTHMUS_API void NAME(int64_t rows, const int64_t* indptr, const int32_t* indices, const int32_t* targets,          \
                        const isthmus::ROWS::In* x, int64_t width, int64_t x_stride,                                  \
                        const isthmus::ROWS::Sum* edge_weight, const isthmus::ROWS::Sum* col_scale,                   \
                        const isthmus::ROWS::Sum* row_scale, isthmus::ROWS::Out* out, int64_t out_stride,             \
                        int add_self, int accumulate, int threads) {                                                  \
    isthmus::aggregate<isthmus::ROWS>(rows, indptr, indices, targets, x, width, x_stride, edge_weight, col_scale,     \
                                      row_scale, out, out_stride, add_self, accumulate, threads);                     \
  }

ISTHMUS_AGGREGATE(aggregate_f32, Plain<float>)
ISTHMUS_AGGREGATE(aggregate_f64, Plain<double>)
ISTHMUS_AGGREGATE(aggregate_bf16, Half)
ISTHMUS_AGGREGATE(aggregate_f32_bf16, Rounded<isthmus::Plain<float>>)
ISTHMUS_AGGREGATE(aggregate_bf16_bf16, Rounded<isthmus::Half>)
