#include "base/replaced_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temporary_directory.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

class ReplacedFile : public ::testing::Test {
 protected:
  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  mode_t Mode() const {
    struct stat state {};
    return ::stat(path_.c_str(), &state) == 0 ? state.st_mode & 07777 : 0;
  }
  size_t NumFiles() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory_.path()), {}));
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/file";
};

TEST_F(ReplacedFile, HasItsTextAndModeWhateverTheUmaskSays) {
  const mode_t before = ::umask(0777);
  EXPECT_TRUE(ReplaceFile(path_, "one\n", 0644).ok());
  EXPECT_EQ(Mode(), 0644u);
  ::umask(0);
  EXPECT_TRUE(ReplaceFile(path_, "two\n", 0600).ok());
  ::umask(before);
  EXPECT_EQ(Mode(), 0600u);
  EXPECT_EQ(Text(), "two\n");
  EXPECT_EQ(NumFiles(), 1u);
}

// A link that somebody put there must not have us write where it leads.
TEST_F(ReplacedFile, TakesThePlaceOfALink) {
  const std::string target = directory_.path() + "/target";
  std::ofstream(target) << "theirs";
  std::filesystem::create_symlink(target, path_);
  EXPECT_TRUE(ReplaceFile(path_, "ours", 0600).ok());
  EXPECT_FALSE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(std::filesystem::file_size(target), 6u);
}

TEST_F(ReplacedFile, WhatFailsLeavesNothingBehind) {
  std::filesystem::create_directories(path_ + "/full");
  const Status failed = ReplaceFile(path_, "text", 0600);
  EXPECT_THAT(failed.message(), HasSubstr("write '" + path_ + "'"));
  EXPECT_EQ(NumFiles(), 1u);
  EXPECT_EQ(ReplaceFile(directory_.path() + "/missing/file", "text", 0600).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tally
