// When a session's window forgets its graphs.
#include <chrono>
#include <thread>

#include "tests/server/executor/session/session_window_fixture.h"

namespace tally::fakes {
namespace {

TEST_F(SessionWindowTest, GraphsAreForgottenWhenCodeIsUnloaded) {
  uint64_t module = 0;
  ASSERT_NE(LoadKernel(*channel_, "put", &module, 2, kPut), 0u);
  RememberShape();
  channel_->Post(Op::kUnloadModule, Payload().PutWord(module));
  ExpectForgotten();
}

TEST_F(SessionWindowTest, GraphsAreForgottenWhenAFunctionChanges) {
  RememberShape();
  const uint64_t attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  ASSERT_EQ(
      channel_->CallNumber(kOp_cuFuncSetAttribute, Payload().PutWord(kernel_).PutWord(attribute).PutWord(1024)).result,
      0u);
  ExpectForgotten();
}

TEST_F(SessionWindowTest, GraphsAreForgottenWhenAFunctionPrefersOtherCaches) {
  RememberShape();
  ASSERT_EQ(channel_->CallNumber(kOp_cuFuncSetCacheConfig, Payload().PutWord(kernel_).PutWord(CU_FUNC_CACHE_PREFER_L1))
                .result,
            0u);
  ExpectForgotten();
}

TEST_F(SessionWindowTest, GraphsAreForgottenWhenAKernelChanges) {
  kernel_ = LoadLibraryKernel();
  ASSERT_NE(kernel_, 0u);
  RememberShape();
  const uint64_t attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const Payload change = Payload().PutWord(attribute).PutWord(1024).PutWord(kernel_).PutWord(0);
  ASSERT_EQ(channel_->CallNumber(kOp_cuKernelSetAttribute, change).result, 0u);
  ExpectForgotten();
}

TEST_F(SessionWindowTest, GraphsAreForgottenWhenAResetLoadsLibrariesAnew) {
  kernel_ = LoadLibraryKernel();
  channel_->Post(Op::kUnloadModule, Payload().PutWord(module_));
  ASSERT_NE(kernel_, 0u);
  RememberShape();
  const Payload reset = Payload().Put(shm::CloseContext{0, 1});
  ASSERT_EQ(channel_->Call(Op::kCloseContext, reset, shm::kNoContext).result, 0u);
  ASSERT_EQ(channel_->Call(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kFirstEvent, 0, 0})).result, 0u);
  word_ = NewWord();
  IssueShape();  // on another stream, which may be where the old one was
  ExpectForgotten();
  EXPECT_EQ(Read(word_), 6u);
  const auto shapes = [&] { return executor_->WindowShapes(); };  // as published now and then
  for (int i = 0; i < 10000 && (shapes().empty() || shapes().front().num_uses < 10); ++i) {
    IssueShape();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(shapes().size(), 1u) << "that of the old stream, too";
}

}  // namespace
}  // namespace tally::fakes
