// That policies decide without allocating: every allocation of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "scheduler/policy_list.h"

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

TEST(PolicyAllocation, NoneInSteadyState) {
  for (const PolicyRow& row : Policies()) {
    const std::unique_ptr<Policy> policy = row.create({});
    std::vector<TenantId> tenants;
    std::vector<LaunchId> in_flight;
    tenants.reserve(100);
    in_flight.reserve(1000);
    TimePoint now{};
    for (int i = 0; i < 100; ++i) {
      const auto tenant_class = i < 10 ? TenantClass::kHighPriority : TenantClass::kBestEffort;
      tenants.push_back(policy->AddTenant({.tenant_class = tenant_class, .level = static_cast<uint8_t>(i % 3)}, now));
    }
    uint64_t num_decisions = 0;
    const auto turn = [&](int round) {
      for (size_t i = 0; i < tenants.size(); ++i) {
        if (i >= 10 || round % 7 == 0) {
          policy->OnSubmitted(tenants[i], {.duration = std::chrono::microseconds(50), .can_yield = row.uses_variants},
                              now);
        }
      }
      for (int step = 0; step < 400; ++step) {
        now += std::chrono::microseconds(100);
        while (const auto decision = policy->Next(now)) {
          ++num_decisions;
          if (decision->kind == Decision::Kind::kDispatch) in_flight.push_back(decision->launch);
        }
        for (size_t i = 0; i < in_flight.size(); ++i) {
          if (row.uses_variants && i == 0 && round % 7 == 0 && step == 0) {
            policy->OnYielded(in_flight[i], std::chrono::microseconds(10), now);
          } else {
            policy->OnCompleted(in_flight[i], std::chrono::microseconds(50), now);
          }
        }
        in_flight.clear();
      }
      // Tenants come and go, too.
      policy->RemoveTenant(tenants[50], now);
      tenants[50] = policy->AddTenant({.weight = static_cast<uint32_t>(1 + round)}, now);
    };
    for (int round = 0; round < 20; ++round) turn(round);
    const uint64_t before = num_allocations.load();
    const uint64_t decided_before = num_decisions;
    for (int round = 0; round < 50; ++round) turn(round);
    EXPECT_EQ(num_allocations.load() - before, 0u) << row.name;
    EXPECT_GT(num_decisions - decided_before, 4000u) << row.name;
  }
}

TEST(PolicyAllocation, IsSeen) {
  const uint64_t before = num_allocations.load();
  std::make_unique<std::vector<int>>(1000);
  EXPECT_GE(num_allocations.load() - before, 1u);
}

}  // namespace
}  // namespace tally::scheduler
