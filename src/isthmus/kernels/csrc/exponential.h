// Exponential variates by whole numbers alone: libm's logarithm differs between machines, and draws must not.
#pragma once

#include <cstdint>

namespace isthmus {

constexpr int64_t kLn2 = 762123384786;  // ln 2 in units of 2^-40
constexpr int kDegree = 10;
// -ln(1 - u/2) / u on [0, 1] as a polynomial in u, in units of 2^-30; off by less than 1e-8.
constexpr int64_t kTail[kDegree + 1] = {536870912, 134217667, 44741658, 16740222, 6998536, 1507892,
                                        4734038,   -5550563,  6662813,  -3793120, 1131063};

// An exponential variate with mean 1 made of 64 random bits, in units of 2^-40; below 2^46.
//
// An exponential variate is a number of halvings, each of ln 2, and a rest -ln(1 - u/2). The low half of the bits is
// counted for the first (its zeros from the right), the high half is u.
inline int64_t exponential(uint64_t bits) {
  const uint32_t low = (uint32_t)bits;
  const int64_t halvings = low ? __builtin_ctz(low) : 32, high = (int64_t)(bits >> 32), u = high >> 1;
  int64_t tail = kTail[kDegree];
  for (int k = kDegree - 1; k >= 0; --k) tail = kTail[k] + ((tail * u) >> 31);
  return halvings * kLn2 + (((2 * high + 1) * tail) >> 23);
}

}  // namespace isthmus
