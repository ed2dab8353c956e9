#include "server/daemon/runtime_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

class RuntimeDirTest : public ::testing::Test {
 protected:
  const TemporaryDirectory temporary_;
  const std::string base_ = temporary_.path();
  const std::string path_ = base_ + "/made/on/demand";
};

TEST_F(RuntimeDirTest, IsMadePrivateAndLocked) {
  const auto first = RuntimeDir::Open(path_, /*others_may_connect=*/false);
  ASSERT_TRUE(first) << first.error().message();
  struct stat state {};
  ASSERT_EQ(::stat(path_.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700u);
  const auto second = RuntimeDir::Open(path_, false);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(second.error().message(), ::testing::HasSubstr(std::to_string(::getpid())));
}

TEST_F(RuntimeDirTest, SessionIdsGoOnAfterARestart) {
  {
    const auto directory = RuntimeDir::Open(path_, false);
    EXPECT_EQ((*directory)->TakeSessionId(), 1u);
    EXPECT_EQ((*directory)->TakeSessionId(), 2u);
  }
  const auto directory = RuntimeDir::Open(path_, false);
  EXPECT_EQ((*directory)->TakeSessionId(), 3u);
}

TEST_F(RuntimeDirTest, ProcessesThatAreNoExecutorsAreForgotten) {
  const auto directory = RuntimeDir::Open(path_, false);
  (*directory)->NoteExecutor(::getpid());  // alive, but of another name
  EXPECT_TRUE(std::filesystem::exists(path_ + "/executor-" + std::to_string(::getpid())));
  EXPECT_THAT((*directory)->LivingExecutors(), ::testing::IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(path_ + "/executor-" + std::to_string(::getpid())));
}

TEST_F(RuntimeDirTest, DirectoryThatOthersCanWriteIsRefused) {
  std::filesystem::create_directories(path_);
  ::chmod(path_.c_str(), 0770);
  const auto directory = RuntimeDir::Open(path_, false);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code(), StatusCode::kPermissionDenied);
}

TEST_F(RuntimeDirTest, RemovesWhatItMade) {
  const auto directory = RuntimeDir::Open(path_, false);
  (*directory)->TakeSessionId();
  (*directory)->RemoveFiles(/*and_directory=*/true);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace tally::server
