// Vertex-cuts that place one edge after the other (EBV, HDRF), and the masters of a vertex-cut. Their twins are in
// partition/vertex/twin.py. Scores are integers, so that both choose alike.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "vertex_cut.h"
#include "common.h"

using namespace isthmus;

// Sorts the edges by the sum of their ends' degrees, ascending, equal ones as they are: their numbers and rows.
ISTHMUS_API void edges_by_degree(int64_t nodes, const int64_t* indptr, const int32_t* indices, const int64_t* degree,
                                 int64_t symmetric, int64_t* order, int32_t* rows) {
  int64_t most = 0;
  for (int64_t v = 0; v < nodes; ++v) most = std::max(most, degree[v]);
  std::vector<int64_t> next(2 * most + 2, 0);
  for_edges(0, nodes, indptr, indices, symmetric,
            [&](int64_t, int32_t row, int32_t column) { ++next[degree[row] + degree[column] + 1]; });
  for (size_t k = 1; k < next.size(); ++k) next[k] += next[k - 1];
  for_edges(0, nodes, indptr, indices, symmetric, [&](int64_t e, int32_t row, int32_t column) {
    const int64_t at = next[degree[row] + degree[column]]++;
    order[at] = e, rows[at] = row;
  });
}

namespace {

// Says on which hosts another replica of a node costs more: where it would talk to a master on another host or, as
// published, where the node has none yet.
struct FarHosts {
  int64_t width, hosts;
  bool messages;
  std::vector<uint64_t> masks;  // per host, the set of its parts
  std::vector<uint8_t> far;     // per host

  FarHosts(int64_t parts, const int32_t* host, int64_t width, bool messages) : width(width), messages(messages) {
    hosts = 1 + *std::max_element(host, host + parts);
    masks.assign(hosts * width, 0), far.assign(hosts, 0);
    for (int64_t p = 0; p < parts; ++p) masks[host[p] * width + p / 64] |= uint64_t(1) << (p % 64);
  }

  // Looks at a node with these replicas; its owner is on the host that has the most of them.
  void look(const uint64_t* replicas) {
    int64_t most = 0;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t h = 0; h < hosts; ++h) {
        int64_t count = 0;
        for (int64_t k = 0; k < width; ++k) count += __builtin_popcountll(replicas[k] & masks[h * width + k]);
        if (pass == 0) most = std::max(most, count);
        else far[h] = messages ? count < most : count == 0;
      }
  }
};

}  // namespace

// Places edges[0..count) by EBV. costs = {of a new replica, of one on a far host, of an edge in a part, of a node in a
// part}; cost [parts] is what the loads of every part add; host [parts]; messages: see FarHosts.
ISTHMUS_API void ebv_place(int64_t count, const int64_t* edges, const int32_t* rows, const int32_t* indices,
                           int64_t parts, const int32_t* host, int64_t messages, const int64_t* costs, int64_t* cost,
                           int64_t width, uint64_t* replicas, int16_t* part) {
  Replicas here{replicas, width};
  FarHosts of_u(parts, host, width, messages), of_v = of_u;
  for (int64_t k = 0; k < count; ++k) {
    const int32_t u = rows[k], v = indices[edges[k]];
    if (costs[1]) of_u.look(replicas + u * width), of_v.look(replicas + v * width);
    int64_t best = 0, least = INT64_MAX;
    for (int64_t p = 0; p < parts; ++p) {
      int64_t score = cost[p];
      if (!here.has(u, p)) score += costs[0] + costs[1] * of_u.far[host[p]];
      if (!here.has(v, p)) score += costs[0] + costs[1] * of_v.far[host[p]];
      if (score < least) best = p, least = score;
    }
    cost[best] += costs[2] + costs[3] * (2 - here.has(u, best) - here.has(v, best));
    here.add(u, best), here.add(v, best);
    part[edges[k]] = (int16_t)best;
  }
}

// Places the edges of rows [first, last) by HDRF; with `high` only those between two such nodes. A part takes no more
// than `capacity` edges. `balance` is the weight of the loads in 1/1024; size [parts], part [E] are updated.
ISTHMUS_API void hdrf_place(int64_t first, int64_t last, const int64_t* indptr, const int32_t* indices, int64_t symmetric,
                            const int64_t* degree, const uint8_t* high, int64_t parts, int64_t capacity,
                            int64_t balance, int64_t* size, int64_t width, uint64_t* replicas, int16_t* part) {
  constexpr int64_t kOne = 1 << 20;
  Replicas here{replicas, width};
  for_edges(first, last, indptr, indices, symmetric, [&](int64_t e, int32_t u, int32_t v) {
    if (high && !(high[u] && high[v])) return;
    const int64_t of_u = kOne + kOne * degree[v] / (degree[u] + degree[v]), of_v = 3 * kOne - of_u;
    int64_t largest = 0, smallest = INT64_MAX;
    for (int64_t p = 0; p < parts; ++p) largest = std::max(largest, size[p]), smallest = std::min(smallest, size[p]);
    const int64_t unit = (kOne << 10) / (1 + largest - smallest) * balance;
    int64_t best = -1, most = -1;
    for (int64_t p = 0; p < parts; ++p) {
      if (size[p] >= capacity) continue;
      const int64_t score = here.has(u, p) * of_u + here.has(v, p) * of_v + ((largest - size[p]) * unit >> 20);
      if (score > most) best = p, most = score;
    }
    ++size[best];
    here.add(u, best), here.add(v, best);
    part[e] = (int16_t)best;
  });
}

// Gives the other direction of each edge of a symmetric graph the part of the placed one; false if it is not symmetric.
ISTHMUS_API int place_reverses(int64_t nodes, const int64_t* indptr, const int32_t* indices, int16_t* part) {
  std::vector<int64_t> next(nodes);
  for (int64_t row = 0; row < nodes; ++row)
    next[row] = std::upper_bound(indices + indptr[row], indices + indptr[row + 1], (int32_t)row) - indices;
  bool symmetric = true;
  for_edges(0, nodes, indptr, indices, true, [&](int64_t e, int32_t row, int32_t column) {
    if (next[column] >= indptr[column + 1] || indices[next[column]] != row) symmetric = false;
    else part[next[column]++] = part[e];
  });
  return symmetric;
}

// Adds the parts of its placed edges to the set of each node.
ISTHMUS_API void mark_replicas(int64_t nodes, const int64_t* indptr, const int32_t* indices, const int16_t* part,
                               int64_t width, uint64_t* replicas) {
  Replicas here{replicas, width};
  for_edges(0, nodes, indptr, indices, false, [&](int64_t e, int32_t row, int32_t column) {
    if (part[e] != kUnplaced) here.add(row, part[e]), here.add(column, part[e]);
  });
}

// Chooses the owner of every node among its replicas: of those in several parts, in order, the part that sends the
// fewest rows so far (an owner one to each mirror, a mirror one to its owner), then the one that owns the fewest nodes.
// With `host` [parts], only the parts of the host that has the most replicas of the node are looked at. A node without
// edges goes to the part that owns the fewest.
ISTHMUS_API void choose_masters(int64_t nodes, int64_t parts, int64_t width, const uint64_t* replicas,
                                const int32_t* host, int32_t* owner) {
  const Replicas here{const_cast<uint64_t*>(replicas), width};
  std::vector<int64_t> sent(parts, 0), owned(parts, 0);
  std::vector<int32_t> held;
  std::vector<int32_t> on_host(parts, 0);
  for (const int64_t wanted : {1, 2, 0}) {  // replicas: one leaves no choice, 2 stands for several
    for (int64_t v = 0; v < nodes; ++v) {
      held.clear();
      for (int64_t p = 0; p < parts; ++p)
        if (here.has(v, p)) held.push_back((int32_t)p);
      if (std::min<int64_t>(held.size(), 2) != wanted) continue;
      if (wanted == 0)
        for (int64_t p = 0; p < parts; ++p) held.push_back((int32_t)p);
      int32_t most = 0, best = -1;
      if (host && wanted) {
        std::fill(on_host.begin(), on_host.end(), 0);
        for (const int32_t p : held) most = std::max(most, ++on_host[host[p]]);
      }
      for (const int32_t p : held) {
        if (host && wanted && on_host[host[p]] < most) continue;
        if (best < 0 || (wanted && sent[p] != sent[best] ? sent[p] < sent[best] : owned[p] < owned[best])) best = p;
      }
      owner[v] = best, ++owned[best];
      if (wanted == 2) {
        for (const int32_t p : held) ++sent[p];
        sent[best] += (int64_t)held.size() - 2;
      }
    }
  }
}
