#include "server/executor/issue/remembered_accesses.h"

#include <algorithm>
#include <cstring>

#include "base/mixed_hash.h"

namespace tally::server {
uint64_t RememberedAccesses::HashOf(const Launch& launch) {
  uint64_t hash = Mixed(launch.inputs.size(), launch.kernel);
  hash = Mixed(hash, launch.grid[0] | uint64_t{launch.block[0]} << 32);
  hash = Mixed(hash, launch.grid[1] | uint64_t{launch.block[1]} << 32);
  hash = Mixed(hash, launch.grid[2] | uint64_t{launch.block[2]} << 32);
  for (size_t at = 0; at < launch.inputs.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, launch.inputs.data() + at, std::min<size_t>(8, launch.inputs.size() - at));
    hash = Mixed(hash, word);
  }
  return hash;
}

bool RememberedAccesses::Entry::Is(const Launch& launch) const {
  return kernel == launch.kernel && grid == launch.grid && block == launch.block &&
         inputs.size() == launch.inputs.size() &&
         (inputs.empty() || std::memcmp(inputs.data(), launch.inputs.data(), inputs.size()) == 0);
}

size_t RememberedAccesses::Entry::num_bytes() const {
  return inputs.capacity() + answers.num_bytes() + accesses.accesses.capacity() * sizeof(scheduler::Access);
}

const LaunchAccesses* RememberedAccesses::Find(const Launch& launch, uint64_t generation, const LaunchMemory& memory) {
  if (sets_.empty()) return nullptr;
  const uint64_t hash = hash_(launch);
  for (Entry& entry : SetOf(hash)) {
    if (entry.hash != hash || entry.generation == 0 || !entry.Is(launch)) continue;
    if (entry.generation != generation && !entry.answers.Hold(memory)) return nullptr;
    entry.generation = generation;
    entry.was_found = true;
    last_answers_ = &entry.answers;
    return &entry.accesses;
  }
  return nullptr;
}

// Its own, one that is empty, or of those in turn one that was not found again.
RememberedAccesses::Entry& RememberedAccesses::PlaceIn(Set& set, const Launch& launch) {
  for (Entry& entry : set) {
    if (entry.generation == 0 || entry.Is(launch)) return entry;
  }
  for (Entry& entry : set) {
    if (!entry.was_found) return entry;
    entry.was_found = false;
  }
  return set.front();
}

const LaunchAccesses& RememberedAccesses::Remember(const Launch& launch, uint64_t generation, MemoryAnswers answers,
                                                   LaunchAccesses accesses) {
  if (sets_.empty() || num_bytes_ > kMostBytes) {
    sets_ = std::vector<Set>(kMostLaunches / kWays);
    num_bytes_ = 0;
  }
  const uint64_t hash = hash_(launch);
  Entry& entry = PlaceIn(SetOf(hash), launch);
  num_bytes_ -= entry.num_bytes();
  entry.hash = hash;
  entry.kernel = launch.kernel;
  entry.generation = generation;
  entry.grid = launch.grid;
  entry.block = launch.block;
  entry.was_found = false;
  entry.inputs.assign(launch.inputs.begin(), launch.inputs.end());
  entry.answers = std::move(answers);
  entry.accesses = std::move(accesses);
  entry.accesses.name = ++last_name_;
  num_bytes_ += entry.num_bytes();
  last_answers_ = &entry.answers;
  return entry.accesses;
}

}  // namespace tally::server
