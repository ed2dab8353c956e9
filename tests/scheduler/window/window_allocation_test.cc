// That windows allocate nothing once they have seen their largest number of boxes: every allocation of this program is
// counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "scheduler/window/parallelism.h"
#include "scheduler/window/repeated_window.h"
#include "scheduler/window/shape.h"
#include "scheduler/window/window.h"

namespace {
std::atomic<uint64_t> num_allocations{0};
}

void* operator new(size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tally::scheduler {
namespace {

// New boxes all the time, of a few lengths: old ones have to go.
TEST(WindowAllocation, NoneInSteadyState) {
  Window window;
  RepeatedWindow repeated;
  WindowShape shape;
  WindowParallelism parallelism;
  std::vector<Access> accesses;
  accesses.reserve(4);
  uint64_t address = 1 << 20;
  const auto turn = [&](size_t num_launches) {
    for (size_t i = 0; i < num_launches; ++i) {
      if (window.is_full()) {
        for (SlotSet left = window.pending(); left != 0; left = WithoutFirst(left)) window.Complete(FirstOf(left));
        shape.Clear();
      }
      accesses.clear();
      accesses.push_back({*Box::Range(address - 100, 100), AccessKind::kRead});
      accesses.push_back({*Box::Range(address, 100), AccessKind::kWrite});
      accesses.push_back({*Box::Rows(address - 100'000, 64 << (i % 8), 4, 65536), AccessKind::kRead});
      address += 100;
      shape.Add(*window.Admit(accesses), i % 5, 1);
      if (i % 40 == 0) repeated.Clear();
      repeated.Admit(i % 2 == 0 ? 0 : i, accesses);
      parallelism.Add(accesses, Extent::kSaid, Nanoseconds(1000));
      if (i % 100 == 0) window.Close();
    }
  };
  turn(20'000);
  const uint64_t before = num_allocations.load();
  turn(100'000);
  EXPECT_EQ(num_allocations.load() - before, 0u);
}

TEST(WindowAllocation, IsSeen) {
  const uint64_t before = num_allocations.load();
  std::make_unique<std::vector<int>>(1000);
  EXPECT_GE(num_allocations.load() - before, 1u);
}

}  // namespace
}  // namespace tally::scheduler
