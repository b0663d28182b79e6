// Neighbourhood expansion (Zhang et al. 2017; NE++ of HEP, Mayer & Jacobsen 2021): grow one part after the other around
// the nodes with the fewest neighbours outside. Its twin is in partition/vertex/twin.py.

#include <algorithm>
#include <cstdint>

#include "vertex_cut.h"
#include "common.h"

using namespace isthmus;

namespace {

// The graph of low-degree nodes: of each, its neighbours and the numbers of the edges to them, [begin, end). Edges that
// are placed are removed when a row is read.
struct Rows {
  const int64_t* begin;
  int64_t* end;
  int32_t* neighbour;
  uint32_t* edge;
};

// Nodes by a key that only falls: lists for each key, the last that came is first.
struct Queue {
  int32_t *head, *next, *previous, *key;  // head [keys]; the others [nodes]
  int64_t keys, least = 0;

  void add(int32_t v, int32_t k) {
    key[v] = k, next[v] = head[k], previous[v] = -1;
    if (head[k] >= 0) previous[head[k]] = v;
    head[k] = v;
    least = std::min<int64_t>(least, k);
  }

  void remove(int32_t v) {
    if (previous[v] >= 0) next[previous[v]] = next[v];
    else head[key[v]] = next[v];
    if (next[v] >= 0) previous[next[v]] = previous[v];
    key[v] = -1;
  }

  void lower(int32_t v) {  // at 0 nothing is left to expand
    const int32_t k = key[v];
    remove(v);
    if (k > 1) add(v, k - 1);
  }

  int32_t pop() {
    while (least < keys && head[least] < 0) ++least;
    if (least == keys) return -1;
    const int32_t v = head[least];
    remove(v);
    return v;
  }

  void clear() {
    for (; least < keys; ++least)
      while (head[least] >= 0) remove(head[least]);
    least = 0;
  }
};

struct Expansion {
  Rows rows;
  Queue queue;
  int32_t* member;  // [nodes]: the last part that the node joined; INT32_MAX: high degree, in every part
  int16_t* part;    // [edges]
  int32_t k;
  int64_t room;  // edges that the part can still take

  bool inside(int32_t v) const { return member[v] == k || member[v] == INT32_MAX; }

  // Let a node join the part: its edges to nodes inside are placed, the others count how far outside it lies.
  void join(int32_t v, bool waits) {
    member[v] = k;
    int64_t kept = rows.begin[v];
    int32_t outside = 0;
    for (int64_t e = kept; e < rows.end[v]; ++e) {
      const int32_t w = rows.neighbour[e];
      const uint32_t number = rows.edge[e];
      if (part[number] != kUnplaced) continue;
      if (inside(w) && room > 0) {
        part[number] = (int16_t)k, --room;
        if (member[w] == k && queue.key[w] > 0) queue.lower(w);
        continue;
      }
      rows.neighbour[kept] = w, rows.edge[kept++] = number;
      outside += !inside(w);
    }
    rows.end[v] = kept;
    if (waits && outside > 0) queue.add(v, outside);
  }

  // Let all neighbours of a node join.
  void expand(int32_t v) {
    for (int64_t e = rows.begin[v]; e < rows.end[v] && room > 0; ++e)
      if (!inside(rows.neighbour[e]) && part[rows.edge[e]] == kUnplaced) join(rows.neighbour[e], true);
  }
};

}  // namespace

// Lists the edges at each low-degree node: the neighbour and the number of the edge. begin [nodes+1] has to be given;
// end [nodes] and the lists are filled.
ISTHMUS_API void list_edges(int64_t nodes, const int64_t* indptr, const int32_t* indices, int64_t symmetric,
                            const uint8_t* high, const int64_t* begin, int64_t* end, int32_t* neighbour,
                            uint32_t* edge) {
  std::copy(begin, begin + nodes, end);
  for_edges(0, nodes, indptr, indices, symmetric, [&](int64_t e, int32_t u, int32_t v) {
    if (!high[u]) neighbour[end[u]] = v, edge[end[u]++] = (uint32_t)e;
    if (!high[v]) neighbour[end[v]] = u, edge[end[v]++] = (uint32_t)e;
  });
}

// Grows part k by up to `room` edges; `start` is where the search for a node outside begins, and is updated. order
// [nodes] are the nodes in the order in which they may be such a start. Returns the number of edges placed.
ISTHMUS_API int64_t expand_part(int64_t k, int64_t room, int64_t nodes, const int32_t* order, int64_t* start,
                                const int64_t* begin, int64_t* end, int32_t* neighbour, uint32_t* edge,
                                int64_t keys, int32_t* head, int32_t* links, int32_t* member, int16_t* part) {
  Expansion grown{{begin, end, neighbour, edge}, {head, links, links + nodes, links + 2 * nodes, keys}, member, part,
                  (int32_t)k, room};
  while (grown.room > 0) {
    int32_t v = grown.queue.pop();
    if (v < 0) {
      const auto idle = [&](int32_t w) {  // placed edges are still listed: look at them
        if (member[w] == INT32_MAX) return true;
        while (end[w] > begin[w] && part[edge[end[w] - 1]] != kUnplaced) --end[w];
        return end[w] == begin[w];
      };
      while (*start < nodes && idle(order[*start])) ++*start;
      if (*start == nodes) break;
      v = order[*start];
      if (member[v] != k) grown.join(v, false);
    }
    grown.expand(v);
  }
  grown.queue.clear();
  return room - grown.room;
}
