#include "server/daemon/grant_book.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

using ::testing::HasSubstr;

class GrantBookTest : public ::testing::Test {
 protected:
  uint64_t Add(const std::string& tenant, bool is_of_file = false) {
    GrantSpec spec;
    spec.tenant = tenant;
    const auto added = book_.Add(spec, is_of_file);
    EXPECT_TRUE(added) << tenant;
    return added ? (*added)->id : 0;
  }
  void Write(const std::string& text) { std::ofstream(path_) << text; }

  TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/grants.json";
  GrantBook book_{path_};
};

TEST_F(GrantBookTest, ANameIsNotGivenTwiceAndANumberNeverAgain) {
  const uint64_t first = Add("a");
  GrantSpec spec;
  spec.tenant = "a";
  EXPECT_EQ(book_.Add(spec, false).error().code(), StatusCode::kAlreadyExists);
  book_.Remove(first);
  EXPECT_EQ(book_.Find("a"), nullptr);
  EXPECT_GT(Add("a"), first);
}

TEST_F(GrantBookTest, TheNextDaemonKnowsThem) {
  const uint64_t gone = Add("gone");
  const uint64_t stays = Add("stays", true);
  book_.Remove(gone);
  ASSERT_TRUE(book_.Save().ok());
  struct stat state {};
  ASSERT_EQ(::stat(path_.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
  GrantBook next(path_);
  ASSERT_TRUE(next.Load().ok());
  ASSERT_EQ(next.grants().size(), 1u);
  EXPECT_EQ(next.Find(stays)->spec.tenant, "stays");
  EXPECT_TRUE(next.Find(stays)->is_of_file);
  GrantSpec spec;
  spec.tenant = "new";
  EXPECT_GT((*next.Add(spec, false))->id, stays);
}

TEST_F(GrantBookTest, NoFileIsNoGrantAndADamagedOneIsASentence) {
  EXPECT_TRUE(book_.Load().ok());
  for (const char* text :
       {"", "{", "[]", "{\"next_id\": -1, \"grants\": []}", "{\"next_id\": 2, \"grants\": [{\"id\": 1}]}",
        R"({"next_id": 2, "grants": [{"id": 2, "grant": {"tenant": "a"}}]})",
        R"({"next_id": 3, "grants": [{"id": 1, "grant": {"tenant": "a"}}, {"id": 2, "grant": {"tenant": "a"}}]})",
        R"({"next_id": 2, "grants": [{"id": 1, "grant": {"tenant": "../a"}}]})"}) {
    Write(text);
    EXPECT_THAT(book_.Load().message(), HasSubstr("is not as tallyd leaves it")) << text;
    EXPECT_TRUE(book_.grants().empty());
  }
}

TEST_F(GrantBookTest, ALinkIsNeitherReadNorWritten) {
  const std::string elsewhere = directory_.path() + "/elsewhere";
  const std::string others = R"({"next_id": 2, "grants": [{"id": 1, "grant": {"tenant": "a"}}]})";
  std::ofstream(elsewhere) << others;
  ASSERT_EQ(::symlink(elsewhere.c_str(), path_.c_str()), 0);
  EXPECT_FALSE(book_.Load().ok());
  ASSERT_TRUE(book_.Save().ok());
  std::string text;
  std::getline(std::ifstream(elsewhere), text);
  EXPECT_EQ(text, others);
  struct stat state {};
  ASSERT_EQ(::lstat(path_.c_str(), &state), 0);
  EXPECT_TRUE(S_ISREG(state.st_mode));
}

TEST_F(GrantBookTest, WhatCannotBeSavedLeavesWhatWasSaved) {
  Add("a");
  ASSERT_TRUE(book_.Save().ok());
  Add("b");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{16, before.rlim_max};  // as a disk that is
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_FALSE(book_.Save().ok());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  GrantBook next(path_);
  ASSERT_TRUE(next.Load().ok());
  EXPECT_EQ(next.grants().size(), 1u);
}

TEST_F(GrantBookTest, ThereAreSoManyAtMost) {
  for (size_t i = 0; i < kMaxGrants; ++i) Add(fmt::format("t{}", i));
  GrantSpec spec;
  spec.tenant = "one-more";
  EXPECT_EQ(book_.Add(spec, false).error().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tally::server
