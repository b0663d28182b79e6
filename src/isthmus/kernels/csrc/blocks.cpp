// ByteGNN's partitioner: blocks of nodes around labelled ones, and their assignment to parts. Its twins are in
// partition/bytegnn/twin.py. Whatever decides is a whole number, or one rounded quotient of two: both choose alike.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common.h"

namespace {

constexpr int64_t kScale = int64_t(1) << 20;  // room is an integer share

struct Graph {
  const int64_t* indptr;
  const int32_t* indices;
  template <typename Body>
  void for_neighbours(int32_t v, Body body) const {
    for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e) body(indices[e]);
  }
};

struct Parts {
  int64_t count, nodes, labelled;  // parts; nodes and labelled nodes of the graph
  const int64_t* capacity;         // [3]: of training, validation and test nodes in a part
  int64_t* load;                   // [count, 3]: how many of them a part has
  int64_t* size;                   // [count]: nodes of a part

  int64_t labels(int64_t p) const { return load[3 * p] + load[3 * p + 1] + load[3 * p + 2]; }
  bool full(int64_t p, const int64_t* adds) const {
    for (int c = 0; c < 3; ++c)
      if (adds[c] > 0 && load[3 * p + c] + adds[c] > capacity[c]) return true;
    return false;
  }
  // The share of its labelled nodes (of a block that has some; else of all nodes) that a part still lacks.
  int64_t room(int64_t p, bool labels_count) const {
    const int64_t has = labels_count ? labels(p) : size[p], all = labels_count ? labelled : nodes;
    return kScale - kScale * count * has / all;
  }
  void add(int64_t p, const int64_t* adds, int64_t members, int sign) {
    size[p] += sign * members;
    for (int c = 0; c < 3; ++c) load[3 * p + c] += sign * adds[c];
  }
};

// Algorithm 2 with guards: one is added to the cross-edges, no set of labelled nodes exceeds its capacity, ties and
// blocks without a choice go to the part with the fewest labelled nodes, then the fewest nodes.
int64_t guarded_choice(const Parts& parts, const std::vector<int64_t>& near, const int64_t* adds) {
  const bool labels = adds[0] + adds[1] + adds[2] > 0;
  int64_t best = -1, spare = 0;
  double most = 0;
  const auto lighter = [&](int64_t p, int64_t than) {
    const int64_t a = labels ? parts.labels(p) : 0, b = labels ? parts.labels(than) : 0;
    return a != b ? a < b : parts.size[p] < parts.size[than];
  };
  for (int64_t p = 0; p < parts.count; ++p) {
    const bool full = parts.full(p, adds);
    if (p > 0 && (full != parts.full(spare, adds) ? !full : lighter(p, spare))) spare = p;
    const int64_t room = parts.room(p, labels);
    if (full || room <= 0) continue;
    const double score = (double)((near[p] + 1) * room) / (double)std::max<int64_t>(parts.size[p], 1);
    if (best < 0 || score > most || (score == most && lighter(p, best))) best = p, most = score;
  }
  return best < 0 ? spare : best;
}

// Algorithm 2 as printed, 0/0 being 0; the first of equal parts. Blocks without labelled nodes: the smallest part.
int64_t published_choice(const Parts& parts, const std::vector<int64_t>& near, const int64_t* adds) {
  if (adds[0] + adds[1] + adds[2] == 0) return std::min_element(parts.size, parts.size + parts.count) - parts.size;
  int64_t best = 0;
  double most = 0;
  for (int64_t p = 0; p < parts.count; ++p) {
    const int64_t size = parts.size[p];
    const double score = size ? (double)(near[p] * parts.room(p, true)) / (double)size : 0.0;
    if (p == 0 || score > most) best = p, most = score;
  }
  return best;
}

}  // namespace

// Grows blocks from their centres along in-edges, hop by hop; of several that reach a node in the same hop the one
// whose centre comes first takes it. block [nodes] is -1 but at the centres; queue [nodes] begins with the `count`
// centres. Returns how many nodes have a block then.
ISTHMUS_API int64_t grow_blocks(int64_t hops, int64_t count, const int64_t* indptr, const int32_t* indices,
                                int32_t* block, int32_t* queue) {
  const Graph graph{indptr, indices};
  int64_t first = 0, last = count;
  for (int64_t hop = 0; hop < hops && first < last; ++hop) {
    for (; first < last; ++first) {
      const int32_t v = queue[first];
      graph.for_neighbours(v, [&](int32_t u) {
        if (block[u] < 0) block[u] = block[v], queue[count++] = u;
      });
    }
    last = count;
  }
  return last;
}

// Gives the nodes without a block pieces of at most `most` nodes, each grown from its smallest node along in-edges and
// named by it. queue [nodes] is work space.
ISTHMUS_API void gather_rest(int64_t nodes, int64_t most, const int64_t* indptr, const int32_t* indices,
                             int32_t* block, int32_t* queue) {
  const Graph graph{indptr, indices};
  for (int64_t start = 0; start < nodes; ++start) {
    if (block[start] >= 0) continue;
    int64_t first = 0, last = 1;
    block[start] = queue[0] = (int32_t)start;
    for (; first < last && last < most; ++first)
      graph.for_neighbours(queue[first], [&](int32_t u) {
        if (block[u] < 0 && last < most) block[u] = (int32_t)start, queue[last++] = u;
      });
  }
}

// Gives blocks first <= b < last of `order` a part each. Block b has the nodes member[start[b]..start[b+1]), and adds
// [blocks, 3] training, validation and test nodes. part [nodes] is -1 where nothing is placed yet.
ISTHMUS_API void assign_blocks(int64_t first, int64_t last, const int64_t* order, const int64_t* start,
                               const int32_t* member, const int64_t* indptr, const int32_t* indices,
                               const int64_t* adds, int64_t guarded, int64_t count, int64_t nodes, int64_t labelled,
                               const int64_t* capacity, int64_t* load, int64_t* size, int32_t* part) {
  const Graph graph{indptr, indices};
  Parts parts{count, nodes, std::max<int64_t>(labelled, 1), capacity, load, size};
  std::vector<int64_t> near(count);
  for (int64_t k = first; k < last; ++k) {
    const int64_t b = order[k];
    std::fill(near.begin(), near.end(), 0);
    for (int64_t m = start[b]; m < start[b + 1]; ++m)
      graph.for_neighbours(member[m], [&](int32_t u) {
        if (part[u] >= 0) ++near[part[u]];
      });
    const int64_t p = guarded ? guarded_choice(parts, near, adds + 3 * b) : published_choice(parts, near, adds + 3 * b);
    parts.add(p, adds + 3 * b, start[b + 1] - start[b], 1);
    for (int64_t m = start[b]; m < start[b + 1]; ++m) part[member[m]] = (int32_t)p;
  }
}

// Adds to `to` what one more hop reads: each of `fanout` draws of node v, made chance[v] times, goes to one of its
// neighbours. Rows first <= v < last.
ISTHMUS_API void spread_reads(int64_t first, int64_t last, const int64_t* indptr, const int32_t* indices,
                              const double* per_edge, double* to) {
  for (int64_t v = first; v < last; ++v)
    if (per_edge[v] > 0)
      for (int64_t e = indptr[v]; e < indptr[v + 1]; ++e) to[indices[e]] += per_edge[v];
}

// Sums the weights of the edges between blocks first <= b < last and all others: a row per block. found [blocks+1] are
// the ends of the rows in columns and weights, where there is room for all; with columns null rows are only counted.
// number [nodes] is the block of a node, reads [nodes] the weight of each edge into it; work [blocks] is -1.
ISTHMUS_API void contract_blocks(int64_t first, int64_t last, const int64_t* start, const int32_t* member,
                                 const int64_t* indptr, const int32_t* indices, const int32_t* number,
                                 const int64_t* reads, int64_t* work, int64_t* found, int32_t* columns,
                                 int64_t* weights) {
  const Graph graph{indptr, indices};
  int64_t at = found[first];
  for (int64_t b = first; b < last; ++b) {
    const int64_t begin = at;
    for (int64_t m = start[b]; m < start[b + 1]; ++m)
      graph.for_neighbours(member[m], [&](int32_t u) {
        const int32_t other = number[u];
        if (other == b) return;
        if (work[other] < begin) {
          work[other] = at++;
          if (columns) columns[work[other]] = other, weights[work[other]] = 0;
        }
        if (columns) weights[work[other]] += reads[member[m]];
      });
    found[b + 1] = at;
  }
}

// Moves nodes first <= v < last to the part with which they share the most reads, where it has room. kind [nodes] is 0,
// 1, 2 (training, validation, test node), 3 (none) or 4 (stays where it is); capacity [4] and load [parts, 4] count the
// first three and all nodes. Returns the number of moves.
ISTHMUS_API int64_t refine_nodes(int64_t first, int64_t last, const int64_t* indptr, const int32_t* indices,
                                 int64_t symmetric, const int64_t* reads, const int8_t* kind, int64_t parts,
                                 const int64_t* capacity, int64_t* load, int32_t* part) {
  const Graph graph{indptr, indices};
  std::vector<int64_t> near(parts);
  int64_t moved = 0;
  for (int64_t v = first; v < last; ++v) {
    const int64_t was = part[v], k = kind[v];
    if (k > 3) continue;
    std::fill(near.begin(), near.end(), 0);
    graph.for_neighbours((int32_t)v, [&](int32_t u) { near[part[u]] += reads[v] + (symmetric ? reads[u] : 0); });
    int64_t best = was;
    for (int64_t p = 0; p < parts; ++p)
      if (near[p] > near[best] && load[4 * p + 3] < capacity[3] && load[4 * p + k] < capacity[k]) best = p;
    if (best == was) continue;
    --load[4 * was + 3], ++load[4 * best + 3];
    if (k < 3) --load[4 * was + k], ++load[4 * best + k];
    part[v] = (int32_t)best;
    ++moved;
  }
  return moved;
}
