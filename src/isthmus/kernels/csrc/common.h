// Shared by the loops of the native core: vectors of one register, and rows dealt out to threads by work.
//
// Plain C ABI, no torch and no Python headers: one build serves every version of both. Each loop has a torch twin
// in ../twin.py, which shows what it computes; the code here only shows how.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__AVX512F__)
#define ISTHMUS_VECTOR_BYTES 64
#elif defined(__AVX__)
#define ISTHMUS_VECTOR_BYTES 32
#else
#define ISTHMUS_VECTOR_BYTES 16
#endif

#define ISTHMUS_API extern "C" __attribute__((visibility("default")))

namespace isthmus {

constexpr int kCacheLine = 64;

typedef uint16_t Bf16;  // bits of a bfloat16; its arithmetic is that of float

template <typename T>
using Wide = typename std::conditional<std::is_same<T, Bf16>::value, float, T>::type;

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(Bf16 bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

inline void narrow(float value, float& to) { to = value; }
inline void narrow(double value, double& to) { to = value; }
inline void narrow(float value, Bf16& to) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // half to even
  to = (Bf16)(value == value ? rounded : 0x7fc0u);
}

template <typename T>
struct Vector {
  static constexpr int lanes = ISTHMUS_VECTOR_BYTES / sizeof(T);
  typedef T type __attribute__((vector_size(ISTHMUS_VECTOR_BYTES)));
  typedef T unaligned __attribute__((vector_size(ISTHMUS_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
};

template <typename T>
inline typename Vector<T>::type load(const T* from) {
  return *reinterpret_cast<const typename Vector<T>::unaligned*>(from);
}

template <typename T>
inline void store(T* to, typename Vector<T>::type value) {
  *reinterpret_cast<typename Vector<T>::unaligned*>(to) = value;
}

// First row of chunk `k` of `chunks`, so that every chunk has about the same number of edges plus rows.
inline int64_t chunk_begin(const int64_t* indptr, int64_t rows, int64_t k, int64_t chunks) {
  const int64_t target = (indptr[rows] + rows) / chunks * k;
  if (k >= chunks) return rows;
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (indptr[middle] + middle < target) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Calls body(first_row, last_row) for chunks of about equal work. A row belongs to one thread, so sums do not
// depend on the number of threads; chunks are long, so that a thread stays inside one locality block.
template <typename Body>
inline void for_row_chunks(const int64_t* indptr, int64_t rows, int threads, Body body) {
  const int64_t chunks = threads > 1 ? std::min<int64_t>(rows, threads * 32) : 1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t k = 0; k < chunks; ++k)
    body(chunk_begin(indptr, rows, k, chunks), chunk_begin(indptr, rows, k + 1, chunks));
}

// Calls body(first, last) for as many equal contiguous shares as there are threads.
template <typename Body>
inline void for_chunks(int64_t count, int threads, Body body) {
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int k = 0; k < threads; ++k) body(count * k / threads, count * (k + 1) / threads);
}

// Calls body(i) for every i, in equal contiguous shares.
template <typename Body>
inline void for_each(int64_t count, int threads, Body body) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace isthmus
