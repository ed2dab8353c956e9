// What launches touched, by all that it depends on: kernel, grid, block, the bytes of parameters that matter, and what
// memory said. Programs launch the same again and again, so most are found. After a change of memory it is asked again
// what it said, once: programs that allocate all the time mostly do so elsewhere.
//
// The hash finds a place; only equality says that it is the same: who makes launches can make hashes agree. Each place
// is one of few, so nobody has to look at many. What is found costs no allocation, and no lock unless memory changed.
// Bounded in number and in bytes. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/executor/issue/launch_accesses.h"

namespace tally::server {

class RememberedAccesses {
 public:
  struct Launch {
    uint64_t kernel = 0;  // any number, never of two
    std::array<uint32_t, 3> grid{};
    std::array<uint32_t, 3> block{};
    std::span<const std::byte> inputs;
  };
  static constexpr size_t kMostLaunches = 4096;
  static constexpr size_t kMostBytes = size_t{16} << 20;

  static uint64_t HashOf(const Launch& launch);
  // `hash`: for tests.
  explicit RememberedAccesses(uint64_t (*hash)(const Launch&) = &HashOf) : hash_(hash) {}

  // Null: not known, or memory says something else now. `generation`: of `memory`, asked before this call. Valid until
  // something is remembered.
  const LaunchAccesses* Find(const Launch& launch, uint64_t generation, const LaunchMemory& memory);
  // It was not found. `generation`: from before `answers` were given. Valid until the next call. The accesses get a
  // name that none had before: they may be others than those that the same launch had then.
  const LaunchAccesses& Remember(const Launch& launch, uint64_t generation, MemoryAnswers answers,
                                 LaunchAccesses accesses);

  // That memory gave for what was found or remembered last. As long valid.
  const MemoryAnswers& last_answers() const { return *last_answers_; }

 private:
  static constexpr size_t kWays = 4;
  struct Entry {
    uint64_t hash = 0;
    uint64_t kernel = 0;
    uint64_t generation = 0;  // in which memory said so last; 0: empty
    std::array<uint32_t, 3> grid{};
    std::array<uint32_t, 3> block{};
    bool was_found = false;  // since it was last to go
    std::vector<std::byte> inputs;
    MemoryAnswers answers;
    LaunchAccesses accesses;

    bool Is(const Launch& launch) const;
    size_t num_bytes() const;
  };
  using Set = std::array<Entry, kWays>;

  Set& SetOf(uint64_t hash) { return sets_[hash % sets_.size()]; }
  static Entry& PlaceIn(Set& set, const Launch& launch);

  uint64_t (*const hash_)(const Launch&);
  std::vector<Set> sets_;  // empty until something is remembered
  size_t num_bytes_ = 0;
  uint64_t last_name_ = 0;
  const MemoryAnswers* last_answers_ = nullptr;
};

}  // namespace tally::server
