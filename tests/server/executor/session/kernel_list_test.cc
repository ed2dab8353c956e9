// Kernels of a module are listed in several replies; on the software driver, as the fake one lists none.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

class KernelListTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    config.driver_table_for_testing = nullptr;
    config.driver.choice = control::DriverChoice::kSim;
    config.driver.sim_path = TALLY_SIM_DRIVER_PATH;
  }
};

struct List {
  uint32_t num_left = 0;
  std::vector<std::string> names;
};

List ListFrom(ScriptedChannel& channel, uint64_t module, uint32_t first) {
  const Answer answer = channel.Call(Op::kListKernels, Payload().Put(shm::GetByName{module, 0, first}));
  EXPECT_EQ(answer.result, 0u);
  List list{answer.Get<uint32_t>(4), {}};
  size_t at = 8;
  for (uint32_t i = 0; i < answer.Get<uint32_t>(); ++i) {
    const auto size = answer.Get<uint32_t>(at + 8);
    list.names.emplace_back(reinterpret_cast<const char*>(answer.payload.data()) + at + 16, size);
    at += 16 + (size + 7) / 8 * 8;
  }
  EXPECT_EQ(at, answer.payload.size());
  return list;
}

TEST_F(KernelListTest, GoesOnWhereItIsAskedTo) {
  constexpr size_t kNameBytes = 100;  // some of them fill a reply
  constexpr uint32_t kKernels = 600;
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
  for (uint32_t i = 0; i < kKernels; ++i)
    text += ".visible .entry k" + std::to_string(i) + std::string(kNameBytes, 'x') + "() { ret; }\n";
  auto client = Connect();
  auto channel = client->OpenChannel();
  uint64_t module = 0;
  ASSERT_NE(LoadKernel(*channel, "k0" + std::string(kNameBytes, 'x'), &module, 1, text), 0u);
  std::vector<std::string> all;
  List list;
  do {
    list = ListFrom(*channel, module, static_cast<uint32_t>(all.size()));
    ASSERT_FALSE(list.names.empty());
    all.insert(all.end(), list.names.begin(), list.names.end());
    ASSERT_EQ(all.size() + list.num_left, kKernels);
  } while (list.num_left != 0);
  EXPECT_LT(list.names.size(), kKernels) << "they do not fit into one reply";
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::unique(all).size(), 0u);
  EXPECT_TRUE(ListFrom(*channel, module, kKernels + 7).names.empty());
}

}  // namespace
}  // namespace tally::fakes
