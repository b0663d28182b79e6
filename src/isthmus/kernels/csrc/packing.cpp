// Linear quantisation of rows into messages and back. A packed row is float lo, float unit, then the codes of B bits
// each, from the low bits of a byte up; feature f stands for lo + code_f * unit.
//
// Sender and reader must round alike whatever the processor, so a product is never fused with a sum in this file.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include <cmath>

#include "common.h"
#include "mix.h"

namespace isthmus {
namespace {

constexpr int kAhead = 8;    // rows between prefetch and use
constexpr int kBlock = 256;  // features of a row worked on at once, on the stack
constexpr int kHeader = 8;   // bytes of lo and unit

inline void prefetch(const void* row, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += kCacheLine) __builtin_prefetch((const char*)row + byte);
}

// The codes in one byte of a message, and the word that has each of them in a byte of its own.
template <int Bits>
struct Codes {
  static constexpr int per_byte = 8 / Bits;
  typedef typename std::conditional<Bits == 4, uint16_t, uint8_t>::type Narrow;
  typedef typename std::conditional<Bits == 2, uint32_t, Narrow>::type Word;

  static inline void fold(const uint8_t* __restrict codes, int bytes, uint8_t* __restrict to) {
#pragma omp simd
    for (int i = 0; i < bytes; ++i) {
      Word word, folded = 0;
      std::memcpy(&word, codes + i * per_byte, sizeof word);
      for (int k = 0; k < per_byte; ++k) folded |= word >> (k * (8 - Bits));
      to[i] = (uint8_t)folded;
    }
  }
  static inline void unfold(const uint8_t* __restrict from, int bytes, uint8_t* __restrict codes) {
#pragma omp simd
    for (int i = 0; i < bytes; ++i) {
      Word word = 0;
      for (int k = 0; k < per_byte; ++k) word |= (Word)(from[i] >> (k * Bits) & ((1 << Bits) - 1)) << (8 * k);
      std::memcpy(codes + i * per_byte, &word, sizeof word);
    }
  }
};

template <typename In>
struct PackTask {
  int64_t width;
  const In* x;
  int64_t x_stride;
  const int32_t* rows;
  Wide<In>* base;
  int64_t base_stride;
  const int32_t* base_rows;
  bool delta, stochastic;
  uint64_t stream;
  uint8_t* to;
  int64_t to_stride;

  const In* row(int64_t i) const { return x + (rows ? rows[i] : i) * x_stride; }
  Wide<In>* base_row(int64_t i) const { return base ? base + (base_rows ? base_rows[i] : i) * base_stride : nullptr; }
};

// The values to quantise of n features: x, x + base or x - base. Without base, x is read where it stands.
template <typename In, typename T>
inline const T* values(const In* __restrict x, const T* __restrict base, bool delta, int n, T* __restrict buffer) {
  if constexpr (std::is_same<In, T>::value)
    if (!base) return x;
  if (!base) {
#pragma omp simd
    for (int f = 0; f < n; ++f) buffer[f] = widen(x[f]);
  } else if (delta) {
#pragma omp simd
    for (int f = 0; f < n; ++f) buffer[f] = widen(x[f]) - base[f];
  } else {
#pragma omp simd
    for (int f = 0; f < n; ++f) buffer[f] = widen(x[f]) + base[f];
  }
  return buffer;
}

template <typename T>
struct Extent {
  T low = std::numeric_limits<T>::infinity(), high = -low;
  T flaw = 0;  // NaN once a value was not finite

  inline void include(const T* v, int n) {
    T least = low, most = high, sum = flaw;
#pragma omp simd reduction(min : least) reduction(max : most) reduction(+ : sum)
    for (int f = 0; f < n; ++f) {
      least = v[f] < least ? v[f] : least;
      most = v[f] > most ? v[f] : most;
      sum += v[f] - v[f];
    }
    low = least, high = most, flaw = sum;
  }
};

template <typename T, bool Stochastic>
inline void quantise(const T* __restrict v, int n, T lo, T unit, T largest, uint64_t key, uint32_t first,
                     uint8_t* __restrict codes) {
  constexpr T kWhole = sizeof(T) == 4 ? T(0x1p23) : T(0x1p52);  // a sum with it has no fraction: it rounds half to even
  const uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
#pragma omp simd
  for (int f = 0; f < n; ++f) {
    T code = (v[f] - lo) / unit;
    if (Stochastic) code += (T)(int32_t)(feature_bits(low, high, first + (uint32_t)f) >> 8) * T(0x1p-24);
    code = code > 0 ? code : T(0);
    code = code < largest ? code : largest;
    if (!Stochastic) code = (code + kWhole) - kWhole;
    codes[f] = (uint8_t)(int32_t)code;
  }
}

// What the message leaves of v for the next one; or the reader's rows, once it has added this message.
template <typename T>
inline void follow(const T* __restrict v, const uint8_t* __restrict codes, int n, T lo, T unit, bool delta,
                   T* __restrict base) {
  if (delta) {
#pragma omp simd
    for (int f = 0; f < n; ++f) base[f] += lo + (T)codes[f] * unit;
  } else {
#pragma omp simd
    for (int f = 0; f < n; ++f) base[f] = v[f] - (lo + (T)codes[f] * unit);
  }
}

template <int Bits, typename In>
inline void pack_row(const PackTask<In>& task, int64_t i) {
  typedef Wide<In> T;
  constexpr T kLargest = (1 << Bits) - 1;
  alignas(kCacheLine) T buffer[kBlock];
  alignas(kCacheLine) uint8_t scratch[kBlock];
  const In* x = task.row(i);
  T* base = task.base_row(i);
  auto block = [&](int64_t f, int n) { return values(x + f, base ? base + f : nullptr, task.delta, n, buffer); };

  Extent<T> extent;
  for (int64_t f = 0; f < task.width; f += kBlock) {
    const int n = (int)std::min<int64_t>(kBlock, task.width - f);
    extent.include(block(f, n), n);
  }
  float lo = (float)extent.low + 0.0f, unit = (float)((extent.high - extent.low) / kLargest);  // + 0 turns -0 into 0
  const bool finite = extent.flaw == 0 && std::isfinite(lo) && std::isfinite(unit);
  if (!finite) lo = unit = std::numeric_limits<float>::quiet_NaN();
  uint8_t* to = task.to + i * task.to_stride;
  std::memcpy(to, &lo, sizeof lo);
  std::memcpy(to + sizeof lo, &unit, sizeof unit);
  to += kHeader;

  const uint64_t key = key_of(task.stream, i);
  for (int64_t f = 0; f < task.width; f += kBlock) {
    const int n = (int)std::min<int64_t>(kBlock, task.width - f);
    const int bytes = (n + Codes<Bits>::per_byte - 1) / Codes<Bits>::per_byte;
    uint8_t* codes = Bits == 8 ? to : scratch;
    const T* v = block(f, n);
    std::memset(codes + n, 0, bytes * Codes<Bits>::per_byte - n);
    if (!(unit > 0)) std::memset(codes, 0, n);
    else if (task.stochastic) quantise<T, true>(v, n, lo, unit, kLargest, key, (uint32_t)f, codes);
    else quantise<T, false>(v, n, lo, unit, kLargest, key, (uint32_t)f, codes);
    if (base) follow<T>(v, codes, n, lo, unit, task.delta, base + f);
    if (Bits != 8) Codes<Bits>::fold(codes, bytes, to);
    to += bytes;
  }
}

template <int Bits, typename In>
void pack(const PackTask<In>& task, int64_t count, int threads) {
  for_each(count, threads, [&](int64_t i) {
    const int64_t soon = std::min(i + kAhead, count - 1);
    prefetch(task.row(soon), task.width * sizeof(In));
    if (task.base) prefetch(task.base_row(soon), task.width * sizeof(Wide<In>));
    pack_row<Bits>(task, i);
  });
}

template <typename Out, bool Accumulate>
inline void restore(const uint8_t* __restrict codes, int n, Wide<Out> lo, Wide<Out> unit, Out* __restrict to) {
#pragma omp simd
  for (int f = 0; f < n; ++f) {
    const Wide<Out> value = lo + (Wide<Out>)codes[f] * unit;
    narrow(Accumulate ? widen(to[f]) + value : value, to[f]);
  }
}

template <int Bits, typename Out>
void unpack(int64_t count, int64_t width, const uint8_t* message, int64_t stride, const int32_t* rows, bool accumulate,
            Out* out, int64_t out_stride, int threads) {
  for_each(count, threads, [=](int64_t i) {
    alignas(kCacheLine) uint8_t scratch[kBlock];
    const uint8_t* from = message + i * stride;
    if (rows) prefetch(out + rows[std::min(i + kAhead, count - 1)] * out_stride, width * sizeof(Out));
    Out* to = out + (rows ? rows[i] : i) * out_stride;
    float lo, unit;
    std::memcpy(&lo, from, sizeof lo);
    std::memcpy(&unit, from + sizeof lo, sizeof unit);
    from += kHeader;
    for (int64_t f = 0; f < width; f += kBlock) {
      const int n = (int)std::min<int64_t>(kBlock, width - f);
      const int bytes = (n + Codes<Bits>::per_byte - 1) / Codes<Bits>::per_byte;
      if (Bits != 8) Codes<Bits>::unfold(from, bytes, scratch);
      const uint8_t* codes = Bits == 8 ? from : scratch;
      if (accumulate) restore<Out, true>(codes, n, lo, unit, to + f);
      else restore<Out, false>(codes, n, lo, unit, to + f);
      from += bytes;
    }
  });
}

}  // namespace
}  // namespace isthmus

#define ISTHMUS_PACKING(SUFFIX, T)                                                                                     \
  ISTHMUS_API void pack_rows_##SUFFIX(int64_t count, int64_t width, const T* x, int64_t x_stride, const int32_t* rows, \
                                      isthmus::Wide<T>* base, int64_t base_stride, const int32_t* base_rows,           \
                                      int delta, int stochastic, uint64_t stream, int bits, uint8_t* to,               \
                                      int64_t to_stride, int threads) {                                                \
    const isthmus::PackTask<T> task{width,     x,          x_stride,        rows,   base, base_stride,                 \
                                    base_rows, delta != 0, stochastic != 0, stream, to,   to_stride};                  \
    if (bits == 2) isthmus::pack<2>(task, count, threads);                                                             \
    else if (bits == 4) isthmus::pack<4>(task, count, threads);                                                        \
    else isthmus::pack<8>(task, count, threads);                                                                       \
  }                                                                                                                    \
  ISTHMUS_API void unpack_rows_##SUFFIX(int64_t count, int64_t width, const uint8_t* message, int64_t stride,          \
                                        const int32_t* rows, int accumulate, int bits, T* out, int64_t out_stride,     \
                                        int threads) {                                                                 \
    auto* unpack = bits == 2 ? isthmus::unpack<2, T> : bits == 4 ? isthmus::unpack<4, T> : isthmus::unpack<8, T>;      \
    unpack(count, width, message, stride, rows, accumulate != 0, out, out_stride, threads);                            \
  }

ISTHMUS_PACKING(f32, float)
ISTHMUS_PACKING(f64, double)
ISTHMUS_PACKING(bf16, uint16_t)
