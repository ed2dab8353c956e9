#include "server/daemon/switch_test.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tally::server {
namespace {

// Stands in for tally-switch-test.
class Script {
 public:
  explicit Script(const std::string& body) {
    char name[] = "/tmp/tally-switch-test.XXXXXX";
    const int fd = ::mkstemp(name);
    path_ = name;
    const std::string text = "#!/bin/sh\n" + body;
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
    ::chmod(name, 0700);
  }
  ~Script() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Nothing: not called.
std::optional<std::optional<control::SwitchFigures>> RunTest(const Script& script) {
  auto loop = EventLoop::Create();
  std::optional<std::optional<control::SwitchFigures>> answer;
  const auto test = SwitchTest::Start(**loop, script.path(), [&](const auto& figures) {
    answer = figures;
    (*loop)->Quit();
  });
  EXPECT_NE(test, nullptr);
  (*loop)->PostDelayed(std::chrono::seconds(30), [&] { (*loop)->Quit(); });
  (*loop)->Run();
  return answer;
}

TEST(SwitchTest, ItsFiguresArrive) {
  const auto answer = RunTest(Script(
      R"([ "$1" = --json ] && echo '{"acts": true, "p50_us": 201.5, "p99_us": 215.4, "own_p99_us": 2281.2}'; exit 0)"));
  ASSERT_TRUE(answer && *answer);
  EXPECT_TRUE((*answer)->acts);
  EXPECT_EQ((*answer)->p50_us, 201.5);
  EXPECT_EQ((*answer)->p99_us, 215.4);
  EXPECT_EQ((*answer)->own_p99_us, 2281.2);
}

TEST(SwitchTest, OneThatFailsIsSaid) {
  const auto answer = RunTest(Script("echo no GPU >&2; exit 1"));
  ASSERT_TRUE(answer);
  EXPECT_FALSE(*answer);
}

TEST(SwitchTest, EndlessOutputIsNotKept) {
  const auto answer = RunTest(Script("head -c 1000000 /dev/zero"));
  ASSERT_TRUE(answer);
  EXPECT_FALSE(*answer);
}

TEST(SwitchTest, WithoutTheProgramNothingHappens) {
  auto loop = EventLoop::Create();
  EXPECT_EQ(SwitchTest::Start(**loop, "/nonexistent/tally-switch-test", [](const auto&) { ADD_FAILURE(); }), nullptr);
}

TEST(SwitchTest, OneThatStillRunsEndsWithItsOwner) {
  auto loop = EventLoop::Create();
  const Script script("exec sleep 1000");
  auto test = SwitchTest::Start(**loop, script.path(), [](const auto&) { ADD_FAILURE(); });
  ASSERT_NE(test, nullptr);
  test.reset();  // waits for it
}

}  // namespace
}  // namespace tally::server
