#include "server/daemon/runtime_dir.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/unique_fd.h"
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
  for (const mode_t mode : {0770u, 0720u, 0702u, 01777u}) {
    ::chmod(path_.c_str(), mode);
    const auto directory = RuntimeDir::Open(path_, false);
    ASSERT_FALSE(directory) << mode;
    EXPECT_EQ(directory.error().code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(directory.error().message(), ::testing::HasSubstr("choose one that only you can write"));
  }
}

// Whoever owns a directory on the way can rename ours and put his own in its place, sockets and all.
TEST_F(RuntimeDirTest, ParentThatBelongsToAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  std::filesystem::create_directories(base_ + "/made");
  ASSERT_EQ(::chown((base_ + "/made").c_str(), 54321, 54321), 0);
  const auto directory = RuntimeDir::Open(path_, false);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(directory.error().message(), ::testing::HasSubstr("'" + base_ + "/made' belongs to user 54321"));
  EXPECT_THAT(directory.error().message(), ::testing::HasSubstr("--socket"));
}

TEST_F(RuntimeDirTest, ParentThatOthersCanWriteIsRefusedUnlessItIsSticky) {
  std::filesystem::create_directories(base_ + "/made");
  ::chmod((base_ + "/made").c_str(), 0777);
  const auto directory = RuntimeDir::Open(path_, false);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(directory.error().message(), ::testing::HasSubstr("chmod go-w '" + base_ + "/made'"));
  ::chmod((base_ + "/made").c_str(), 01777);
  EXPECT_TRUE(RuntimeDir::Open(path_, false));
}

TEST_F(RuntimeDirTest, OnlyAMountLeadsToAGrantAndItsDirectoryStays) {
  const auto directory = RuntimeDir::Open(path_, /*others_may_connect=*/true);
  const auto socket = (*directory)->MakeGrantDirectory("team-a");
  ASSERT_TRUE(socket) << socket.error().message();
  EXPECT_EQ(*socket, path_ + "/grants/team-a/tally.sock");
  struct stat grants {
  }, grant{}, again{};
  ASSERT_EQ(::stat((path_ + "/grants").c_str(), &grants), 0);
  ASSERT_EQ(::stat((path_ + "/grants/team-a").c_str(), &grant), 0);
  EXPECT_EQ(grants.st_mode & 0777, 0700u) << "also where others may connect";
  EXPECT_EQ(grant.st_mode & 0777, 0711u);
  ASSERT_TRUE((*directory)->MakeGrantDirectory("team-a"));
  ASSERT_EQ(::stat((path_ + "/grants/team-a").c_str(), &again), 0);
  EXPECT_EQ(grant.st_ino, again.st_ino) << "a container has it mounted";
  EXPECT_THAT((*directory)->GrantDirectories(), ::testing::ElementsAre("team-a"));
  (*directory)->RemoveGrantDirectory("team-a");
  EXPECT_THAT((*directory)->GrantDirectories(), ::testing::IsEmpty());
}

TEST_F(RuntimeDirTest, ALinkIsNoGrantsDirectory) {
  const auto directory = RuntimeDir::Open(path_, false);
  ASSERT_TRUE((*directory)->MakeGrantDirectory("a"));
  const std::string elsewhere = base_ + "/elsewhere";
  ASSERT_EQ(::mkdir(elsewhere.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(elsewhere.c_str(), (path_ + "/grants/b").c_str()), 0);
  const auto made = (*directory)->MakeGrantDirectory("b");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), ::testing::HasSubstr("is no directory of user"));
  struct stat state {};
  ASSERT_EQ(::stat(elsewhere.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700u) << "nor is its mode changed";
}

TEST_F(RuntimeDirTest, RemovesWhatItMade) {
  const auto directory = RuntimeDir::Open(path_, false);
  (*directory)->TakeSessionId();
  ASSERT_TRUE((*directory)->MakeGrantDirectory("team-a"));
  const UniqueFd activity(::open((path_ + "/activity").c_str(), O_RDWR | O_CREAT, 0600));  // an executor's
  (*directory)->RemoveFiles(/*and_directory=*/true);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace tally::server
