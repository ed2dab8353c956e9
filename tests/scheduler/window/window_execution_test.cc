// Random programs, carried out in whatever order their windows allow: memory must end as in program order.
//
// Each byte is a hash. What a launch writes depends on all that it reads, on itself and on the place, and what it
// leaves alone on the same, so any two launches that conflict and change places leave other memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <vector>

#include "scheduler/window/window.h"
#include "tests/scheduler/window/random_program.h"

namespace tally::scheduler {
namespace {

using Memory = std::array<uint64_t, kMemoryBytes>;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

void Execute(const RandomLaunch& launch, uint64_t number, Memory& memory) {
  uint64_t hash = number;
  for (size_t i = 0; i < kMemoryBytes; ++i) {
    if (launch.reads.test(i)) hash = Mix(hash, memory[i]);
  }
  for (size_t i = 0; i < kMemoryBytes; ++i) {
    // A launch may write less than it says.
    if (launch.writes.test(i) && Mix(hash, i) % 8 != 0) memory[i] = Mix(hash, i);
  }
}

Memory InProgramOrder(const std::vector<RandomLaunch>& launches) {
  Memory memory{};
  for (size_t i = 0; i < launches.size(); ++i) Execute(launches[i], i, memory);
  return memory;
}

enum class Next : uint8_t { kAny, kNewest, kOldest };

// As an executor would: launches start once those before them by edges have ended, and the window hears of ends later,
// in any order.
class Execution {
 public:
  Execution(const std::vector<RandomLaunch>& launches, uint32_t seed, Next next, Hazards hazards)
      : launches_(launches), random_(seed), next_(next), window_(1 + seed % kMostSlots, hazards) {}

  Memory Run() {
    size_t num_admitted = 0;
    while (num_admitted < launches_.size() || waiting_ != 0) {
      const bool can_admit = num_admitted < launches_.size() && !window_.is_full();
      const uint32_t what = random_() % 8;
      if (can_admit && (what < 4 || waiting_ == 0)) {
        Admit(num_admitted++);
      } else if (ended_ != 0 && (what == 4 || waiting_ == 0)) {
        Report();
      } else {
        ExecuteOne();
      }
    }
    return memory_;
  }

 private:
  void Admit(size_t number) {
    const RandomLaunch& launch = launches_[number];
    if (launch.is_closed_before) window_.Close();
    const Window::Entry entry = *window_.Admit(launch.accesses, launch.extent);
    number_[entry.slot] = number;
    edges_[entry.slot] = entry.edges & ~ended_;
    waiting_ |= Just(entry.slot);
  }
  void Report() {
    const Slot slot = Any(ended_);
    ended_ &= ~Just(slot);
    window_.Complete(slot);
  }
  void ExecuteOne() {
    SlotSet ready = 0;
    for (SlotSet left = waiting_; left != 0; left = WithoutFirst(left)) {
      if (edges_[FirstOf(left)] == 0) ready |= Just(FirstOf(left));
    }
    ASSERT_NE(ready, 0u);
    Slot slot = Any(ready);
    for (SlotSet left = ready; left != 0; left = WithoutFirst(left)) {
      const Slot other = FirstOf(left);
      if (next_ == Next::kNewest && number_[other] > number_[slot]) slot = other;
      if (next_ == Next::kOldest && number_[other] < number_[slot]) slot = other;
    }
    Execute(launches_[number_[slot]], number_[slot], memory_);
    waiting_ &= ~Just(slot);
    ended_ |= Just(slot);
    for (SlotSet& edges : edges_) edges &= ~Just(slot);
  }
  Slot Any(SlotSet slots) {
    for (uint32_t i = random_() % static_cast<uint32_t>(std::popcount(slots)); i != 0; --i) slots = WithoutFirst(slots);
    return FirstOf(slots);
  }

  const std::vector<RandomLaunch>& launches_;
  std::mt19937 random_;
  const Next next_;
  Window window_;
  Memory memory_{};
  SlotSet waiting_ = 0;  // admitted, not executed
  SlotSet ended_ = 0;    // executed, not reported
  std::array<size_t, kMostSlots> number_{};
  std::array<SlotSet, kMostSlots> edges_{};
};

TEST(WindowExecution, EndsWithTheBytesOfProgramOrder) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const RandomProgram program(seed, static_cast<Boxes>(seed % 3), 300);
    const Memory expected = InProgramOrder(program.launches());
    for (const Next next : {Next::kAny, Next::kNewest, Next::kOldest}) {
      for (uint32_t schedule = 0; schedule < 3; ++schedule) {
        Execution execution(program.launches(), 64 * seed - 1 - schedule, next, Hazards::kAll);
        ASSERT_EQ(execution.Run(), expected) << seed;
      }
    }
  }
}

// Without two of the hazards the bytes are others nearly always, or the test above would see nothing.
TEST(WindowExecution, MissingHazardsAreSeen) {
  uint32_t num_same = 0;
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    const RandomProgram program(seed, Boxes::kRanges, 300);
    Execution execution(program.launches(), 64 * seed - 1, Next::kAny, Hazards::kReadAfterWrite);
    num_same += execution.Run() == InProgramOrder(program.launches());
  }
  EXPECT_LE(num_same, 2u);
}

}  // namespace
}  // namespace tally::scheduler
