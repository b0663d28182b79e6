// The hashes that every counter-based draw is made of: random bits as a function of (stream, counter) alone.
#pragma once

#include <cstdint>

namespace isthmus {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

inline uint64_t mix64(uint64_t h) {
  h ^= h >> 30;
  h *= 0xbf58476d1ce4e5b9ull;
  h ^= h >> 27;
  h *= 0x94d049bb133111ebull;
  return h ^ (h >> 31);
}

inline uint32_t mix32(uint32_t h) {
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ (h >> 16);
}

// The key of counter `at` in a stream.
inline uint64_t key_of(uint64_t stream, int64_t at) { return mix64(stream + (uint64_t)at * kGolden); }

// The bits of feature f in a row whose key has these halves; 32 bits wide, so that it runs in vectors.
inline uint32_t feature_bits(uint32_t low, uint32_t high, uint32_t f) {
  return mix32(low + f * (uint32_t)(kGolden >> 32)) ^ high;
}

}  // namespace isthmus
