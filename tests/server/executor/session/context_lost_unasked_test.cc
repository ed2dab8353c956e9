// A context that is lost while no program asks for anything: a mark has seen it.
#include <atomic>
#include <thread>

#include "tests/server/executor/fakes/executor_fixture.h"
#include "tests/support/temporary_directory.h"

namespace tally::fakes {
namespace {

using shm::Op;

std::atomic<CUresult> state_of_events{CUDA_ERROR_NOT_READY};

class ContextLostUnaskedTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    state_of_events = CUDA_ERROR_NOT_READY;
    table_ = driver_.table();
    table_.cuCtxGetCurrent = [](CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; };
    table_.cuEventQuery = [](CUevent) { return state_of_events.load(); };
    config.driver_table_for_testing = &table_;
    config.activity_path = directory_.path() + "/activity";
    config.limits.host_function_patience = std::chrono::milliseconds(5);  // how often the executor looks
  }
  void TearDown() override {
    state_of_events = CUDA_SUCCESS;
    ExecutorFixture::TearDown();
  }

  const TemporaryDirectory directory_;
  server::DriverTable table_;
};

TEST_F(ContextLostUnaskedTest, IsEverybodysThoughNobodyAsks) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  control::ShareChange change;
  change.priority_class = shm::PriorityClass::kHighPriority;
  ASSERT_TRUE(executor_->SetPriority(1, change).ok());
  auto channel = client->OpenChannel();
  ASSERT_NE(channel, nullptr);
  const uint64_t kernel = LoadKernel(*channel, "kernel");
  channel->Post(Op::kLaunch, LaunchOf(kernel, 1));
  // Carried out by now: it is announced, and somebody looks for its end.
  Allocate(*channel, 16);
  EXPECT_FALSE(executor_->faulted());
  state_of_events = CUDA_ERROR_ILLEGAL_ADDRESS;
  while (!executor_->faulted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  while (client->header().sticky_error.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(client->header().sticky_error.load(), static_cast<uint32_t>(CUDA_ERROR_ILLEGAL_ADDRESS));
}

}  // namespace
}  // namespace tally::fakes
