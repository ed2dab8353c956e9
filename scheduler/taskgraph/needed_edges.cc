#include "scheduler/taskgraph/needed_edges.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "scheduler/window/ancestors.h"

namespace tally::scheduler {
namespace {

using Bits = std::vector<uint64_t>;
bool IsSet(const uint64_t* bits, size_t at) { return (bits[at / 64] >> at % 64 & 1) != 0; }
void Set(Bits& bits, size_t at) { bits[at / 64] |= uint64_t{1} << at % 64; }
void Join(Bits& to, const Bits& other) {
  for (size_t word = 0; word < to.size(); ++word) to[word] |= other[word];
}

// Who used a region, in order.
struct Users {
  struct Writer {
    uint32_t position = 0;
    // All that used the region before come before it: who is behind it need not look further.
    bool is_behind_all = false;
    uint32_t num_readers = 0;  // when it came
  };
  std::vector<Writer> writers;
  std::vector<uint32_t> readers;  // positions
};

class Search {
 public:
  Search(const TaskGraph& graph, const RegionMap& regions, const NeededEdgesLimits& limits)
      : graph_(graph),
        regions_(regions),
        limits_(limits),
        had_(graph.size()),
        has_(graph.size()),
        users_(regions.size()),
        opaque_(had_.num_words()),
        read_anything_(had_.num_words()),
        write_(had_.num_words()) {}

  std::optional<std::vector<GraphEdge>> Take() {
    std::vector<uint32_t> position_of(graph_.size());
    for (uint32_t i = 0; i < graph_.size(); ++i) position_of[graph_.order()[i]] = i;
    for (uint32_t position = 0; position < graph_.size(); ++position) {
      const TaskId id = graph_.order()[position];
      for (const TaskId before : graph_.before(id)) had_.Add(position, position_of[before]);
      if (!Look(position, id) || !Keep(position, id)) return std::nullopt;
    }
    if (had_ == has_) return std::nullopt;
    return std::move(edges_);
  }

 private:
  // Finds who conflicts with the task. False: too many steps.
  bool Look(uint32_t position, TaskId id) {
    const Extent extent = graph_.task(id).touches.extent;
    if (extent == Extent::kAnything) {
      conflicts_.assign(had_.num_words(), UINT64_MAX);
      Set(opaque_, position);
      return true;
    }
    conflicts_ = opaque_;
    bool writes = false;
    for (const RegionUse& use : regions_.uses(id)) {
      writes |= use.writes;
      if (!LookAt(users_[use.region], position, use.writes)) return false;
    }
    if (writes) Join(conflicts_, read_anything_);
    if (extent == Extent::kReadsAnything) {
      Join(conflicts_, write_);
      Set(read_anything_, position);
    }
    if (writes) Set(write_, position);
    return true;
  }
  bool LookAt(Users& users, uint32_t position, bool writes) {
    const uint64_t* const before = had_.of(position);
    bool is_behind_all = true;
    size_t first_reader = 0;
    const auto note = [&](uint32_t other) {
      Set(conflicts_, other);
      is_behind_all &= IsSet(before, other);
      return ++num_steps_ <= limits_.most_steps;
    };
    for (size_t i = users.writers.size(); i-- > 0;) {
      const Users::Writer& writer = users.writers[i];
      if (!note(writer.position)) return false;
      if (writer.is_behind_all && IsSet(before, writer.position)) {
        first_reader = writer.num_readers;
        break;
      }
    }
    if (!writes) return users.readers.push_back(position), true;
    for (size_t i = users.readers.size(); i-- > first_reader;) {
      if (!note(users.readers[i])) return false;
    }
    users.writers.push_back({position, is_behind_all, static_cast<uint32_t>(users.readers.size())});
    return true;
  }
  // From the nearest: what comes before that need not be looked at. False: too many edges.
  bool Keep(uint32_t position, TaskId id) {
    const uint64_t* const had = had_.of(position);
    const uint64_t* const has = has_.of(position);
    for (size_t word = position / 64 + 1; word-- > 0;) {
      uint64_t left = had[word] & conflicts_[word] & ~has[word];
      while (left != 0) {
        const auto bit = static_cast<size_t>(std::bit_width(left) - 1);
        if (edges_.size() == limits_.most_edges) return false;
        edges_.push_back({graph_.order()[word * 64 + bit], id});
        has_.Add(position, word * 64 + bit);
        left &= ~(uint64_t{1} << bit) & ~has[word];
      }
    }
    return true;
  }

  const TaskGraph& graph_;
  const RegionMap& regions_;
  const NeededEdgesLimits limits_;
  Ancestors had_, has_;
  std::vector<Users> users_;
  // By position: tasks that may do anything, may read anything, write something.
  Bits opaque_, read_anything_, write_;
  Bits conflicts_;  // of the task that is looked at
  size_t num_steps_ = 0;
  std::vector<GraphEdge> edges_;
};

}  // namespace

std::optional<std::vector<GraphEdge>> NeededEdges(const TaskGraph& graph, const RegionMap& regions,
                                                  const NeededEdgesLimits& limits) {
  if (graph.size() > kMostTasksCompared) return std::nullopt;
  return Search(graph, regions, limits).Take();
}

}  // namespace tally::scheduler
