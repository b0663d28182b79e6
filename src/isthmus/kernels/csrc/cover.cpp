// Minimum vertex cover of a bipartite graph: a maximum matching (Hopcroft & Karp 1973), then, of the covers of that
// size (König; Dulmage & Mendelsohn), the one that is asked for. Its twin is cover.py.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common.h"

namespace {

constexpr int32_t kNone = -1;

// A bipartite graph by its rows, with a matching of rows and columns.
struct Matching {
  int64_t rows;
  const int64_t* indptr;
  const int32_t* indices;
  std::vector<int32_t> of_row, of_col;  // the partner, or kNone
  std::vector<int32_t> level, queue;
  std::vector<int64_t> arc;  // the next edge of each row that a search looks at

  Matching(int64_t rows, int64_t cols, const int64_t* indptr, const int32_t* indices)
      : rows(rows), indptr(indptr), indices(indices), of_row(rows, kNone), of_col(cols, kNone), level(rows),
        arc(indptr, indptr + rows) {}

  void match(int32_t row, int32_t col) { of_row[row] = col, of_col[col] = row; }

  // Match what can be matched at once, rows with few columns first: these have the least choice.
  void greedy() {
    std::vector<int32_t> order;
    for (int64_t r = 0; r < rows; ++r)
      if (indptr[r + 1] > indptr[r]) order.push_back((int32_t)r);
    std::stable_sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
      return indptr[a + 1] - indptr[a] < indptr[b + 1] - indptr[b];
    });
    for (const int32_t r : order)
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e)
        if (of_col[indices[e]] == kNone) {
          match(r, indices[e]);
          break;
        }
  }

  // Number the rows by their distance from a free row along alternating paths; true if one reaches a free column.
  bool number_levels() {
    std::fill(level.begin(), level.end(), kNone);
    queue.clear();
    for (int64_t r = 0; r < rows; ++r)
      if (of_row[r] == kNone) level[r] = 0, queue.push_back((int32_t)r);
    int32_t last = INT32_MAX;  // the level at which paths end: the shortest
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t r = queue[head];
      if (level[r] >= last) break;
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) {
        const int32_t next = of_col[indices[e]];
        if (next == kNone) last = level[r] + 1;
        else if (level[next] == kNone) level[next] = level[r] + 1, queue.push_back(next);
      }
    }
    return last != INT32_MAX;
  }

  // Flip one shortest alternating path that begins at a free row, if there is one left.
  void augment(int32_t start, std::vector<int32_t>& path) {
    path.assign(1, start);
    while (!path.empty()) {
      const int32_t r = path.back();
      if (arc[r] == indptr[r + 1]) {
        path.pop_back();
        if (!path.empty()) ++arc[path.back()];
        continue;
      }
      const int32_t next = of_col[indices[arc[r]]];
      if (next == kNone) {
        for (size_t k = path.size(); k-- > 0;) match(path[k], indices[arc[path[k]]]);
        return;
      }
      if (level[next] == level[r] + 1) path.push_back(next);
      else ++arc[r];
    }
  }

  void maximise() {
    greedy();
    std::vector<int32_t> path;
    while (number_levels()) {
      std::copy(indptr, indptr + rows, arc.begin());
      for (int64_t r = 0; r < rows; ++r)
        if (of_row[r] == kNone) augment((int32_t)r, path);
    }
  }
};

// The sides that are covered: of every matched pair one. A pair whose column is covered leaves its row uncovered, so
// the pairs of all columns of that row must have their columns covered, too: strongly connected pairs choose alike,
// and Tarjan's algorithm meets a component after all that it depends on.
struct Choice {
  const Matching& m;
  int64_t lend;  // edges of uncovered rows, at most, where the size of the cover leaves a choice
  std::vector<uint8_t> by_column;  // [rows]: the row is not covered, its columns are
  std::vector<int32_t> number, low, open;
  std::vector<int64_t> arc;
  int32_t count = 0;

  Choice(const Matching& m, int64_t lend) : m(m), lend(lend), by_column(m.rows, 0) {}

  // A row without a partner cannot be covered, hence neither can any that an alternating path reaches from it.
  void settle_free_rows() {
    std::vector<int32_t> queue;
    for (int64_t r = 0; r < m.rows; ++r)
      if (m.of_row[r] == kNone) by_column[r] = 1, queue.push_back((int32_t)r);
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t r = queue[head];
      lend -= m.indptr[r + 1] - m.indptr[r];
      for (int64_t e = m.indptr[r]; e < m.indptr[r + 1]; ++e) {
        const int32_t next = m.of_col[m.indices[e]];
        if (!by_column[next]) by_column[next] = 1, queue.push_back(next);
      }
    }
  }

  // Decide a component, open[first..): all its columns are covered if that is possible and lends few enough edges.
  void close(size_t first) {
    int64_t edges = 0;
    bool possible = true;
    for (size_t k = first; k < open.size(); ++k) {
      const int32_t r = open[k];
      edges += m.indptr[r + 1] - m.indptr[r];
      for (int64_t e = m.indptr[r]; possible && e < m.indptr[r + 1]; ++e) {
        const int32_t next = m.of_col[m.indices[e]];
        possible = next != kNone && (by_column[next] || low[next] >= 0);  // still open: of this component
      }
      if (edges > lend) possible = false;
    }
    if (possible) lend -= edges;
    for (size_t k = first; k < open.size(); ++k) low[open[k]] = kNone;
    for (size_t k = first; possible && k < open.size(); ++k) by_column[open[k]] = 1;
    open.resize(first);
  }

  void settle_components() {
    number.assign(m.rows, kNone), low.assign(m.rows, kNone), arc.assign(m.indptr, m.indptr + m.rows);
    std::vector<int32_t> path, begins(m.rows);
    for (int64_t start = 0; start < m.rows; ++start) {
      if (by_column[start] || number[start] != kNone) continue;
      path.assign(1, (int32_t)start);
      while (!path.empty()) {
        const int32_t r = path.back();
        if (number[r] == kNone) number[r] = low[r] = count++, begins[r] = (int32_t)open.size(), open.push_back(r);
        bool deeper = false;
        for (; arc[r] < m.indptr[r + 1] && !deeper; ++arc[r]) {
          const int32_t next = m.of_col[m.indices[arc[r]]];
          if (next == kNone || by_column[next]) continue;
          if (number[next] == kNone) path.push_back(next), deeper = true;
          else if (low[next] >= 0) low[r] = std::min(low[r], number[next]);
        }
        if (deeper) continue;
        path.pop_back();
        const int32_t reach = low[r];
        if (reach == number[r]) close(begins[r]);
        if (!path.empty() && low[r] >= 0) low[path.back()] = std::min(low[path.back()], reach);
      }
    }
  }
};

}  // namespace

// rows_covered [rows] and cols_covered [cols] become a minimum vertex cover; returns its size. See cover.py.
ISTHMUS_API int64_t vertex_cover(int64_t rows, int64_t cols, const int64_t* indptr, const int32_t* indices,
                                 int64_t lend, uint8_t* rows_covered, uint8_t* cols_covered) {
  Matching matching(rows, cols, indptr, indices);
  matching.maximise();
  std::vector<int32_t>().swap(matching.level), std::vector<int32_t>().swap(matching.queue);
  std::vector<int64_t>().swap(matching.arc);
  Choice choice(matching, lend);
  choice.settle_free_rows();
  if (choice.lend > 0) choice.settle_components();
  int64_t size = 0;
  std::fill(cols_covered, cols_covered + cols, 0);
  for (int64_t r = 0; r < rows; ++r) {
    rows_covered[r] = !choice.by_column[r];
    if (matching.of_row[r] == kNone) continue;
    cols_covered[matching.of_row[r]] = choice.by_column[r], ++size;
  }
  return size;
}
