// Numbers for the nodes of a batch, and rows in the order of their neighbours' names.
#include <utility>
#include <vector>

#include "common.h"

namespace isthmus {
namespace {

constexpr int64_t kAhead = 24;  // entries between prefetch and use

// Gives numbers to nodes in the order in which they are first met. Node u has the number table[u] - base if that is not
// negative, else none yet; new ones are appended to `nodes`, which has room for one more than it can need. Returns how
// many nodes have a number.
template <typename Id>
int64_t number(int64_t count, const Id* met, uint32_t base, uint32_t* table, int64_t known, Id* nodes, int32_t* numbers) {
  for (int64_t e = 0; e < count; ++e) {
    __builtin_prefetch(table + met[std::min(e + kAhead, count - 1)], 1);
    const Id node = met[e];
    const uint32_t had = table[node];
    const bool fresh = had < base;  // as data, not as a branch: it cannot be guessed
    const uint32_t now = fresh ? base + (uint32_t)known : had;
    nodes[known] = node;
    known += fresh;
    table[node] = now;
    numbers[e] = (int32_t)(now - base);
  }
  return known;
}

}  // namespace

ISTHMUS_API int64_t number_nodes_i32(int64_t count, const int32_t* met, uint32_t base, uint32_t* table, int64_t known,
                                     int32_t* nodes, int32_t* numbers) {
  return number(count, met, base, table, known, nodes, numbers);
}
ISTHMUS_API int64_t number_nodes_i64(int64_t count, const int64_t* met, uint32_t base, uint32_t* table, int64_t known,
                                     int64_t* nodes, int32_t* numbers) {
  return number(count, met, base, table, known, nodes, numbers);
}

// Sorts the columns of every row by name (then by place); order[e], if asked for, is where edge e was.
ISTHMUS_API void sort_rows(int64_t rows, const int64_t* indptr, int32_t* indices, const int64_t* names, int64_t* order,
                           int threads) {
  for_row_chunks(indptr, rows, threads, [&](int64_t first, int64_t stop) {
    std::vector<std::pair<int64_t, int64_t>> named;
    std::vector<int32_t> before;
    for (int64_t r = first; r < stop; ++r) {
      const int64_t begin = indptr[r], degree = indptr[r + 1] - begin;
      named.clear();
      for (int64_t j = 0; j < degree; ++j) {
        const int32_t column = indices[begin + j];
        named.emplace_back(names ? names[column] : column, j);
      }
      std::sort(named.begin(), named.end());
      before.assign(indices + begin, indices + begin + degree);
      for (int64_t j = 0; j < degree; ++j) {
        indices[begin + j] = before[named[j].second];
        if (order) order[begin + j] = begin + named[j].second;
      }
    }
  });
}

}  // namespace isthmus
