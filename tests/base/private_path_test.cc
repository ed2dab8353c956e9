#include "base/private_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PrivatePathTest : public ::testing::Test {
 protected:
  std::string Made(const std::string& name, mode_t mode = 0755) {
    const std::string path = base_ + "/" + name;
    fs::create_directories(path);
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string Sentence(const std::string& path) { return CheckPrivatePath(path).message(); }

  const TemporaryDirectory temporary_;
  const std::string base_ = temporary_.path();
};

TEST_F(PrivatePathTest, OursAndRootsAreFine) {
  EXPECT_EQ(Sentence(Made("a/b")), "");
  EXPECT_EQ(Sentence("/"), "");
  EXPECT_EQ(Sentence(Made("a/b") + "/not/there/yet"), "");
  EXPECT_EQ(Sentence(Made("a/b") + "/./../b//"), "");
}

TEST_F(PrivatePathTest, MakesWhatIsMissingForUsAlone) {
  const mode_t before = ::umask(0);
  const Status made = MakePrivateDirectories(base_ + "/new/deep");
  ::umask(before);
  ASSERT_TRUE(made.ok()) << made.message();
  for (const char* name : {"/new", "/new/deep"}) {
    struct stat state {};
    ASSERT_EQ(::stat((base_ + name).c_str(), &state), 0);
    EXPECT_EQ(state.st_mode & 0777, 0700u) << name;
  }
}

TEST_F(PrivatePathTest, WritableByOthersOnlyIfStickyAndNotTheLast) {
  const std::string middle = Made("a", 01777), last = Made("a/b");
  EXPECT_EQ(Sentence(last), "");
  EXPECT_THAT(Sentence(middle), HasSubstr("chmod go-w '" + middle + "'"));
  ::chmod(middle.c_str(), 0775);
  EXPECT_THAT(Sentence(last), HasSubstr("chmod go-w '" + middle + "'"));
}

TEST_F(PrivatePathTest, LinksAreFollowedAndLookedAtWhereTheyLead) {
  const std::string open = Made("open", 0777), kept = Made("open/kept"), own = Made("own");
  fs::create_symlink("../open/kept", own + "/relative");
  fs::create_symlink(kept, own + "/absolute");
  fs::create_symlink("round", own + "/round");
  EXPECT_THAT(Sentence(own + "/relative/x"), HasSubstr("'" + open + "' can be written by others"));
  EXPECT_THAT(Sentence(own + "/absolute"), HasSubstr("'" + open + "' can be written by others"));
  EXPECT_FALSE(CheckPrivatePath(own + "/round").ok());
  ::chmod(open.c_str(), 0755);
  EXPECT_EQ(Sentence(own + "/relative/x"), "");
  EXPECT_EQ(Sentence(own + "/absolute"), "");
  EXPECT_EQ(Sentence(own + "/relative/../../own"), "");
}

TEST_F(PrivatePathTest, LinksAndDirectoriesOfOthersAreNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give something away";
  const std::string sticky = Made("sticky", 01777), own = Made("own");
  fs::create_symlink(own, sticky + "/link");
  EXPECT_EQ(Sentence(sticky + "/link"), "");
  ASSERT_EQ(::lchown((sticky + "/link").c_str(), 54321, 54321), 0);
  EXPECT_THAT(Sentence(sticky + "/link/x"), HasSubstr("'" + sticky + "/link' belongs to user 54321"));
  const std::string given = Made("given");
  ASSERT_EQ(::chown(given.c_str(), 54321, 54321), 0);
  EXPECT_THAT(Sentence(given + "/x"), HasSubstr("belongs to user 54321"));
}

}  // namespace
}  // namespace tally
