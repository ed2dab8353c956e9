#include "client-shim/state/kernels.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tally::client_shim {
namespace {

TEST(Kernels, AFunctionIsNeverTheOneOfAnotherContext) {
  const auto function_in = [](uint32_t context) {
    return shm::MakeHandle(shm::HandleKind::kFunction, 0xff, true, shm::kMaxHandleIndex - context);
  };
  Kernel kernel;
  EXPECT_EQ(kernel.FunctionIn(0), 0u);
  EXPECT_EQ(kernel.Twin(), 0u);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const uint32_t context : {0u, 1u, shm::kMaxContexts - 1}) {
    threads.emplace_back([&, context] {
      while (!stop.load(std::memory_order_relaxed)) kernel.KeepFunction(context, function_in(context));
    });
  }
  uint64_t num_found = 0, num_wrong = 0;
  while (num_found < 200000) {
    for (const uint32_t context : {0u, 1u, shm::kMaxContexts - 1}) {
      const uint64_t function = kernel.FunctionIn(context);
      if (function == 0) continue;
      num_wrong += function != function_in(context) ? 1 : 0;
      ++num_found;
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0u);
  EXPECT_EQ(shm::HandleKindOf(kernel.Twin()), shm::HandleKind::kFunction);
}

}  // namespace
}  // namespace tally::client_shim
