// The executor where the machine has no more threads to give: who asks for one is told so, and all others go on.
#include "tests/server/executor/fakes/task_limit.h"

#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

class TaskLimitTest : public ExecutorFixture {
 protected:
  static bool Answers(ScriptedChannel& channel) { return channel.Call(shm::Op::kMemoryAmount).result == CUDA_SUCCESS; }
};

TEST_F(TaskLimitTest, ChannelsAreOutOfMemoryUntilThereAreThreadsAgain) {
  auto client = Connect();
  auto first = client->OpenChannel();
  {
    const TaskLimit limit;
    const auto reply = client->Request(shm::SessionRequestKind::kOpenChannel);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->cuda_result, static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT_EQ(limit.num_refused(), 1);
    EXPECT_TRUE(Answers(*first));
  }
  auto second = client->OpenChannel();
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(Answers(*second));
}

TEST_F(TaskLimitTest, SessionsAreRefusedWithASentenceAndWithOutOfMemory) {
  auto before = Connect();
  auto channel = before->OpenChannel();
  server::SessionIdentity identity;
  identity.session_id = 1000;
  auto pair = CreateSocketPair();
  ASSERT_TRUE(pair);
  ScriptedClient late(std::move(pair->second));
  {
    const TaskLimit limit;
    const Status added = executor_->AddSession(std::move(pair->first), identity);
    EXPECT_EQ(added.code(), StatusCode::kResourceExhausted) << added.ToString();
    EXPECT_NE(added.message().find("Resource temporarily unavailable"), std::string::npos) << added.message();
    const auto reply = late.Request(shm::SessionRequestKind::kAttach);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->cuda_result, static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
    late.WaitUntilOver();
    EXPECT_TRUE(Answers(*channel));
  }
  // Its number is free again, and the next client comes in.
  pair = CreateSocketPair();
  ASSERT_TRUE(pair);
  ASSERT_TRUE(executor_->AddSession(std::move(pair->first), identity).ok());
  ScriptedClient next(std::move(pair->second));
  ASSERT_TRUE(next.Attach());
  EXPECT_NE(next.OpenChannel(), nullptr);
}

TEST(TaskLimit, AnExecutorWithoutAThreadIsNotMade) {
  FakeDriver driver;
  server::ExecutorConfig config;
  config.driver_table_for_testing = &driver.table();
  const TaskLimit limit;
  const auto executor = server::Executor::Create(config);
  ASSERT_FALSE(executor);
  EXPECT_EQ(executor.error().code(), StatusCode::kResourceExhausted) << executor.error().ToString();
}

}  // namespace
}  // namespace tally::fakes
