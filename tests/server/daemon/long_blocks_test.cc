#include "server/daemon/long_blocks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "server/daemon/peer_facts.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

constexpr const char* kSeenBlocks = "blocks of kernel wgrad ran on for 2.9 ms";

// `sleep 1000 WORD`, until this is gone.
class Sleeper {
 public:
  explicit Sleeper(const char* word) : pid_(::fork()) {
    if (pid_ == 0) {
      ::execlp("sleep", "sleep", "1000", word, nullptr);
      ::_exit(1);
    }
    // It is another program until then.
    for (int i = 0; i < 5'000 && StartedAs(pid_).find(word) == std::string::npos; ++i) ::usleep(1000);
  }
  ~Sleeper() { End(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // What is left of it is what /proc has of a program that is dead and was not waited for.
  void Kill() {
    ::kill(pid_, SIGKILL);
    siginfo_t none{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &none, WEXITED | WNOWAIT);
  }
  void End() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

control::SessionIdentity IdentityOfProcess(pid_t pid, uint32_t uid = 1000, const char* tenant_of_grant = nullptr) {
  control::SessionIdentity identity{};
  identity.pid = pid;
  identity.uid = uid;
  std::strcpy(identity.tenant_name, tenant_of_grant != nullptr ? tenant_of_grant : "what-it-says");
  identity.grant_id = tenant_of_grant != nullptr ? 5 : 0;
  return identity;
}

class LongBlocksTest : public ::testing::Test {
 protected:
  // As the next tallyd does.
  bool IsKnown(const control::SessionIdentity& identity) const {
    return LongBlocks(directory_.path()).Find(ProgramOf(identity).value()).has_value();
  }

  const TemporaryDirectory directory_;
};

TEST_F(LongBlocksTest, AProgramIsKnownByItsCommandLineAndItsUserAlsoAfterARestart) {
  const Sleeper first("2000"), again("2000"), other("2001");
  const auto program = ProgramOf(IdentityOfProcess(first.pid()));
  ASSERT_TRUE(program);
  EXPECT_FALSE(IsKnown(IdentityOfProcess(first.pid())));
  ASSERT_TRUE(LongBlocks(directory_.path()).Remember(*program, kSeenBlocks));
  EXPECT_EQ(LongBlocks(directory_.path()).Find(*program), kSeenBlocks);
  EXPECT_TRUE(IsKnown(IdentityOfProcess(again.pid()))) << "another process";
  EXPECT_FALSE(IsKnown(IdentityOfProcess(other.pid()))) << "another command line";
  EXPECT_FALSE(IsKnown(IdentityOfProcess(::getpid()))) << "another executable";
  EXPECT_FALSE(IsKnown(IdentityOfProcess(first.pid(), 1001))) << "another user";
  EXPECT_FALSE(IsKnown(IdentityOfProcess(first.pid(), 1000, "team-a"))) << "of the same number in a container";
  EXPECT_TRUE(program->DomainName().starts_with("long-blocks-")) << program->DomainName();
  EXPECT_EQ(program->DomainName(), ProgramOf(IdentityOfProcess(again.pid()))->DomainName());
  EXPECT_NE(program->DomainName(), ProgramOf(IdentityOfProcess(other.pid()))->DomainName());
}

TEST_F(LongBlocksTest, ThoseOfATenantAreItsAloneWhateverTheUserInItsContainers) {
  const Sleeper program("2000");
  LongBlocks(directory_.path()).Remember(ProgramOf(IdentityOfProcess(program.pid(), 0, "team-a")).value(), kSeenBlocks);
  EXPECT_TRUE(IsKnown(IdentityOfProcess(program.pid(), 1000, "team-a")));
  EXPECT_FALSE(IsKnown(IdentityOfProcess(program.pid(), 0, "team-b")));
  EXPECT_FALSE(IsKnown(IdentityOfProcess(program.pid(), 0)));
}

TEST_F(LongBlocksTest, WhatProcDoesNotSayIsNotKnown) {
  Sleeper program("2000");
  program.Kill();
  EXPECT_FALSE(ProgramOf(IdentityOfProcess(program.pid()))) << "dead";
  EXPECT_FALSE(ProgramOf(IdentityOfProcess(0))) << "of a process namespace that we do not see";
  EXPECT_EQ(StartedAs(-1), "");
}

// As the daemon of the system service.
TEST_F(LongBlocksTest, WhoMayNotSeeTheExecutableOfOthersSeesTheirCommandLine) {
  const pid_t user = ::fork();
  if (user == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    ::_exit(ProgramOf(IdentityOfProcess(1)) ? 0 : 1);
  }
  int status = -1;
  ::waitpid(user, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(LongBlocksTest, WhoHasManyIsBoundedAndForgetsNobodyElses) {
  constexpr uint64_t kBound = 4000;
  const LongBlocks bounded(directory_.path(), kBound);
  const StartedProgram others{"user-1001", {{1, 2, 3, 4}, 5}};
  ASSERT_TRUE(bounded.Remember(others, kSeenBlocks));
  // As somebody chooses them for whom FileCache by itself does not look at its bound.
  for (uint64_t i = 0; i < 200; ++i)
    ASSERT_TRUE(bounded.Remember({"user-1000", {{16 * i + 1, 0, 0, i}, 5}}, kSeenBlocks));
  uint64_t total = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_.path() + "/long-blocks/user-1000")) {
    total += file.file_size();
  }
  EXPECT_GT(total, 0u);
  EXPECT_LE(total, kBound);
  EXPECT_TRUE(bounded.Find(others));
}

TEST_F(LongBlocksTest, WhereNothingIsKeptNothingIsKnown) {
  const auto program = ProgramOf(IdentityOfProcess(::getpid())).value();
  EXPECT_FALSE(LongBlocks("").Remember(program, kSeenBlocks));
  EXPECT_FALSE(LongBlocks("").Find(program));
}

TEST_F(LongBlocksTest, ToForgetItsFolderIsRemoved) {
  const auto identity = IdentityOfProcess(::getpid());
  LongBlocks(directory_.path()).Remember(ProgramOf(identity).value(), kSeenBlocks);
  EXPECT_TRUE(IsKnown(identity));
  std::filesystem::remove_all(directory_.path() + "/long-blocks/user-1000");
  EXPECT_FALSE(IsKnown(identity));
}

}  // namespace
}  // namespace tally::server
