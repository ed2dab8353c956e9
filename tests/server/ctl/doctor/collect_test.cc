#include "server/ctl/doctor/collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/unix_socket.h"
#include "tests/support/temporary_directory.h"

namespace tally::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A machine that is a folder.
class Machine {
 public:
  const std::string& root() const { return directory_.path(); }
  void Put(const std::string& path, const std::string& text, mode_t mode = 0644) const {
    const std::filesystem::path full = root() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
    ::chmod(full.c_str(), mode);
  }

 private:
  TemporaryDirectory directory_;
};

TEST(Collect, ReadsBothKindsOfDriverVersion) {
  const Machine machine;
  EXPECT_EQ(KernelDriverVersion(machine.root()), "");
  machine.Put(
      "/proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  12\n");
  EXPECT_EQ(KernelDriverVersion(machine.root()), "550.54.15");
  machine.Put("/proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root@x)\n");
  EXPECT_EQ(KernelDriverVersion(machine.root()), "570.124.06");
}

TEST(Collect, ListsGpusAndTheirFilesOnly) {
  const Machine machine;
  machine.Put("/proc/driver/nvidia/gpus/0000:18:00.0/information", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 120\n");
  for (const char* name :
       {"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-uvm-tools", "nvme0"})
    machine.Put(std::string("/dev/") + name, "", 0660);
  EXPECT_THAT(GpuModels(machine.root()), ElementsAre("NVIDIA H200"));
  std::vector<std::string> names;
  for (const FileFact& file : DeviceFiles(machine.root())) {
    names.push_back(file.path.substr(file.path.rfind('/') + 1));
    EXPECT_EQ(file.mode & 07777, 0660u);
    EXPECT_EQ(file.owner, ::geteuid());
  }
  EXPECT_THAT(names, ElementsAre("nvidia-uvm", "nvidia0", "nvidia12", "nvidiactl"));
}

TEST(Collect, ReadsWhoAProcessIs) {
  const Machine machine;
  machine.Put("/proc/7/status",
              "Name:\ttallyd\nUid:\t998\t999\t998\t998\nGid:\t997\t996\t997\t997\nGroups:\t44 105 \n");
  const Account account = AccountOf(7, machine.root());
  EXPECT_EQ(account.uid, 999u);  // the effective one
  EXPECT_THAT(account.groups, ElementsAre(996u, 44u, 105u));
}

constexpr const char* kLimits =
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max processes             100                  100                  processes \n"
    "Max locked memory         8388608              16777216             bytes     \n";

TEST(Collect, TakesTheLowestLimitOfAllCgroupsAbove) {
  const Machine machine;
  machine.Put("/proc/7/limits", kLimits);
  machine.Put("/proc/7/cgroup", "0::/system.slice/tallyd.service\n");
  machine.Put("/sys/fs/cgroup/system.slice/tallyd.service/pids.max", "max\n");
  machine.Put("/sys/fs/cgroup/system.slice/pids.max", "500\n");
  machine.Put("/sys/fs/cgroup/system.slice/pids.current", "12\n");
  machine.Put("/sys/fs/cgroup/pids.max", "9000\n");
  const Limits limits = LimitsOf(7, machine.root());
  EXPECT_TRUE(limits.is_known);
  EXPECT_EQ(limits.locked_bytes, 8388608u);
  EXPECT_EQ(limits.most_tasks, 500u);
  EXPECT_EQ(limits.num_tasks, 12u);
}

TEST(Collect, KnowsTheOldCgroupsAndThatAContainerSeesNoPath) {
  const Machine machine;
  machine.Put("/proc/7/limits", "Max locked memory         unlimited            unlimited            bytes     \n");
  machine.Put("/proc/7/cgroup", "12:cpu,cpuacct:/\n5:pids:/docker/0123\n0::/\n");
  machine.Put("/sys/fs/cgroup/pids/pids.max", "77\n");
  machine.Put("/sys/fs/cgroup/pids/pids.current", "3\n");
  const Limits limits = LimitsOf(7, machine.root());
  EXPECT_EQ(limits.locked_bytes, kNoLimit);
  EXPECT_EQ(limits.most_tasks, 77u);
  EXPECT_EQ(limits.num_tasks, 3u);
  EXPECT_FALSE(LimitsOf(8, machine.root()).is_known);
  EXPECT_EQ(LimitsOf(8, machine.root()).most_tasks, kNoLimit);
}

TEST(Collect, ProgramsThatCannotBeJudgedAreOneSentence) {
  const Machine machine;
  machine.Put("/script", "#!/bin/sh\n");
  machine.Put("/empty", "");
  machine.Put("/text", "no program, though it is long enough to have been one: it has more than sixty-four letters");
  ASSERT_EQ(::mkfifo((machine.root() + "/pipe").c_str(), 0600), 0);
  const auto sentence = [&](const char* name) { return ReadProgram(machine.root() + name).error().message(); };
  EXPECT_THAT(sentence("/script"), HasSubstr("is a script: name the program that runs it"));
  EXPECT_THAT(sentence("/empty"), HasSubstr("no ELF file"));
  EXPECT_THAT(sentence("/text"), HasSubstr("no ELF file"));
  EXPECT_THAT(sentence("/pipe"), HasSubstr("is no file"));
  EXPECT_THAT(sentence("/nowhere"), HasSubstr("No such file"));
  EXPECT_THAT(sentence(""), HasSubstr("is no file"));
  if (::geteuid() != 0) {
    machine.Put("/closed", "x", 0);
    EXPECT_THAT(sentence("/closed"), HasSubstr("Permission denied"));
  }
}

TEST(Collect, WorksWithoutADaemonAndFindsTheDriverOfTheRoot) {
  const Machine machine;
  machine.Put("/usr/lib64/libcuda.so.570.1", "");
  std::filesystem::create_symlink("libcuda.so.570.1", machine.root() + "/usr/lib64/libcuda.so.1");
  machine.Put("/client/libcuda.so.1", "no ELF file");
  ::setenv("TALLY_CLIENT_DIR", (machine.root() + "/client").c_str(), 1);
  Progress progress = "";
  const auto facts = CollectFacts(
      {.socket = machine.root() + "/run/tally.sock", .program = "/proc/self/exe", .root = machine.root()}, progress);
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_EQ(facts->driver_library_version, "570.1");
  EXPECT_THAT(facts->client_problem, HasSubstr("no ELF file"));
  EXPECT_FALSE(facts->daemon.is_there);
  EXPECT_THAT(facts->daemon.unreachable, HasSubstr("no tallyd serves"));
  EXPECT_EQ(facts->socket_directory.path, machine.root() + "/run");
  EXPECT_FALSE(facts->socket_directory.exists);
  EXPECT_EQ(facts->self.uid, ::geteuid());
  ASSERT_TRUE(facts->program);
  EXPECT_TRUE(facts->program->file.is_dynamic);
}

// Somebody listens but says nothing: who it is, is known from the kernel.
TEST(Collect, ADaemonThatSaysNothingIsStillSeen) {
  const Machine machine;
  const std::string socket = machine.root() + "/tally.sock";
  const auto listening = ListenUnix(socket, 0666);
  ASSERT_TRUE(listening);
  Progress progress = "";
  const auto facts = CollectFacts({.socket = socket, .program = "", .root = ""}, progress);
  ASSERT_TRUE(facts);
  EXPECT_TRUE(facts->daemon.is_there);
  EXPECT_EQ(facts->daemon.pid, ::getpid());
  EXPECT_EQ(facts->daemon.account.uid, ::geteuid());
  EXPECT_TRUE(facts->daemon.limits.is_known);
  EXPECT_THAT(facts->daemon.silence, HasSubstr("no tallyd serves"));
  EXPECT_TRUE(S_ISSOCK(facts->client_socket.mode));
}

}  // namespace
}  // namespace tally::cli
