#include "server/ctl/doctor/verdicts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "proto/driver/generated/wire_ops.h"
#include "proto/shm/handshake_abi.h"

namespace tally::cli {
namespace {

using images::FatEntryKind;
using ::testing::HasSubstr;

FileFact File(const std::string& path, mode_t mode, uid_t owner, gid_t group = 0) {
  return {.path = path, .exists = true, .problem = "", .mode = mode, .owner = owner, .group = group};
}

// A machine on which everything is in order: user 1000, tallyd of user 998.
Facts GoodMachine() {
  Facts facts;
  facts.self = {1000, {1000}};
  facts.limits = {.is_known = true};
  facts.glibc = {2, 36};
  facts.client_library = "/usr/lib/tally/client/libcuda.so.1";
  facts.client_needs = {2, 28};
  facts.driver_version = "570.124.06";
  facts.driver_library = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06";
  facts.driver_library_version = "570.124.06";
  facts.gpus = {"NVIDIA H200"};
  facts.devices = {File("/dev/nvidia0", S_IFCHR | 0666, 0), File("/dev/nvidiactl", S_IFCHR | 0666, 0)};
  facts.socket_directory = File("/run/tally", S_IFDIR | 0711, 998, 998);
  facts.client_socket = File("/run/tally/tally.sock", S_IFSOCK | 0666, 998, 998);
  facts.cache_directory = File("/var/cache/tally", S_IFDIR | 0700, 998, 998);
  DaemonFact& daemon = facts.daemon;
  daemon.socket = "/run/tally/tally.sock";
  daemon.is_there = true;
  daemon.pid = 77;
  daemon.account = {998, {998}};
  daemon.limits = {.is_known = true};
  daemon.version = "0.1.0";
  daemon.protocol_version = shm::kProtocolVersion;
  daemon.api_table_hash = kApiTableHash;
  daemon.driver = "cuda";
  daemon.executors = {{.pid = 80,
                       .domain = "best-effort:1000",
                       .driver = "CUDA driver 12.8",
                       .time_slice_us = 1,
                       .is_time_slice_refused = false,
                       .descheduling = "on"}};
  return facts;
}

Check Find(const Facts& facts, const std::string& name) {
  for (Check& check : Judge(facts)) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check '" << name << "'";
  return {};
}

void Expect(const Facts& facts, const std::string& name, Verdict verdict, const std::string& found,
            const std::string& advice = "") {
  const Check check = Find(facts, name);
  EXPECT_STREQ(NameOf(check.verdict), NameOf(verdict)) << name << ": " << check.found;
  EXPECT_THAT(check.found, HasSubstr(found)) << name;
  EXPECT_THAT(check.advice, HasSubstr(advice)) << name;
  EXPECT_TRUE(verdict == Verdict::kOk || !check.advice.empty()) << name << " says not what to do";
}

TEST(Verdicts, NothingToDoOnAGoodMachine) {
  for (const Check& check : Judge(GoodMachine())) {
    EXPECT_EQ(check.verdict, Verdict::kOk) << check.name << ": " << check.found;
    EXPECT_EQ(check.advice, "") << check.name;
    EXPECT_NE(check.found, "") << check.name;
  }
}

TEST(Verdicts, Glibc) {
  Facts facts = GoodMachine();
  facts.glibc = {2, 17};
  Expect(facts, "glibc", Verdict::kFailed, "2.17; the client library needs 2.28");
  facts.client_problem = "Tally's libcuda.so.1 is not in '/x'";
  Expect(facts, "glibc", Verdict::kOk, "2.17");
  Expect(facts, "client library", Verdict::kFailed, "not in '/x'", "TALLY_CLIENT_DIR");
}

TEST(Verdicts, Driver) {
  Facts facts = GoodMachine();
  facts.driver_library_version = "535.1";
  Expect(facts, "NVIDIA driver", Verdict::kFailed, "of 535.1", "restart");
  facts.driver_library = "";
  Expect(facts, "NVIDIA driver", Verdict::kFailed, "no libcuda.so.1", "TALLY_REAL_LIBCUDA");
  facts.driver_version = "";
  Expect(facts, "NVIDIA driver", Verdict::kWarning, "none", "software GPU");
}

TEST(Verdicts, DeviceFilesAreJudgedByTheDaemonsRights) {
  Facts facts = GoodMachine();
  facts.devices[0] = File("/dev/nvidia0", S_IFCHR | 0660, 0, 44);
  Expect(facts, "GPU device files", Verdict::kFailed, "/dev/nvidia0 (user 0, mode 0660) is closed to tallyd's user 998",
         "group 44");
  facts.self.groups.push_back(44);  // ours do not matter
  Expect(facts, "GPU device files", Verdict::kFailed, "closed to tallyd's user 998");
  facts.daemon.account.groups.push_back(44);
  Expect(facts, "GPU device files", Verdict::kOk, "2 files (NVIDIA H200), open to tallyd's user 998");
  facts.daemon.is_there = false;
  facts.self = {1000, {1000}};
  Expect(facts, "GPU device files", Verdict::kFailed, "closed to user 1000");
  facts.self = {0, {0}};
  Expect(facts, "GPU device files", Verdict::kOk, "open to user 0");
  facts.devices.clear();
  Expect(facts, "GPU device files", Verdict::kFailed, "none", "nvidia-modprobe");
}

// An owner has the owner's rights only, also where the group's are wider.
TEST(Verdicts, AnOwnersRightsAreTheOwners) {
  Facts facts = GoodMachine();
  facts.devices[0] = File("/dev/nvidia0", S_IFCHR | 0066, 998, 998);
  Expect(facts, "GPU device files", Verdict::kFailed, "closed to tallyd's user 998");
}

TEST(Verdicts, SocketsAndTheirDirectory) {
  Facts facts = GoodMachine();
  // Its group's members are others, too; that only root's may be removed (01000) does not keep them from adding one.
  for (const auto& [mode, name] : {std::pair(0777, "0777"), {0731, "0731"}, {0713, "0713"}, {01777, "1777"}}) {
    facts.socket_directory.mode = static_cast<mode_t>(S_IFDIR | mode);
    Expect(facts, "socket directory", Verdict::kFailed, name, "chmod go-w /run/tally");
  }
  facts.socket_directory.mode = S_IFDIR | 0700;
  Expect(facts, "socket", Verdict::kFailed, "closed to user 1000", "allowed_uids");
  facts.socket_directory = File("/run/tally", S_IFDIR | 0711, 5);
  Expect(facts, "socket directory", Verdict::kWarning, "user 5", "998");
  facts.client_socket.mode = S_IFREG | 0666;
  Expect(facts, "socket", Verdict::kFailed, "is no socket", "remove it");
}

TEST(Verdicts, ADaemonThatIsNotThereIsOneFailure) {
  Facts facts = GoodMachine();
  facts.daemon = {};
  facts.daemon.unreachable = "no tallyd serves /run/tally/tally.sock";
  facts.client_socket = FileFact();
  facts.client_socket.path = "/run/tally/tally.sock";
  facts.socket_directory = FileFact();
  facts.socket_directory.path = "/run/tally";
  facts.cache_directory = FileFact();
  facts.cache_directory.path = "/var/cache/tally";
  Expect(facts, "tallyd", Verdict::kFailed, "no tallyd", "tally-run --embedded");
  size_t num_failed = 0;
  for (const Check& check : Judge(facts)) num_failed += check.verdict == Verdict::kFailed;
  EXPECT_EQ(num_failed, 1u);
}

TEST(Verdicts, ADaemonOfAnotherVersionOrThatSaysLittle) {
  Facts facts = GoodMachine();
  facts.daemon.api_table_hash += 1;
  Expect(facts, "tallyd", Verdict::kFailed, "does not fit", "restart tallyd");
  facts.daemon.silence = "the control socket is only for the user who runs tallyd";
  Expect(facts, "tallyd", Verdict::kWarning, "process 77 of user 998; the control socket", "sudo");
}

TEST(Verdicts, AUserIsToldOfHisOwnOnly) {
  Facts facts = GoodMachine();
  facts.daemon.sees_own_only = true;
  facts.daemon.executors.clear();
  Expect(facts, "tallyd", Verdict::kOk, "process 77 of user 998, driver cuda; you see your own sessions only");
  Expect(facts, "time slices", Verdict::kOk, "not known: no executor of yours uses a GPU now");
  Expect(facts, "suspension", Verdict::kOk, "no executor of yours deschedules its contexts now");
}

TEST(Verdicts, Cache) {
  Facts facts = GoodMachine();
  facts.cache_free_bytes = 5 << 20;
  Expect(facts, "cache directory", Verdict::kWarning, "5.0 MiB free", "make room");
  facts.cache_directory.owner = 0;
  Expect(facts, "cache directory", Verdict::kWarning, "cannot be written by tallyd's user 998", "chown 998");
  facts.cache_directory = {};
  Expect(facts, "cache directory", Verdict::kOk, "none");
}

TEST(Verdicts, TimeSlicesAndDescheduling) {
  Facts facts = GoodMachine();
  Expect(facts, "time slices", Verdict::kOk, "accepted: 1 us in best-effort:1000");
  Expect(facts, "suspension", Verdict::kOk, "accepted in executor 80");
  facts.daemon.executors[0].is_time_slice_refused = true;
  facts.daemon.executors[0].descheduling = "refused";
  Expect(facts, "time slices", Verdict::kWarning, "refused by the driver in executor 80", "look-ahead");
  Expect(facts, "suspension", Verdict::kWarning, "refused by the driver in executor 80");
  facts.switch_test = SwitchFact{.problem = "", .acts = true, .p99_us = 170.2, .own_p99_us = 2300};
  Expect(facts, "time slices", Verdict::kOk, "a switch takes 170 us at p99, 2300 with the driver's own");
  facts.switch_test->acts = false;
  Expect(facts, "time slices", Verdict::kWarning, "refuses", "look-ahead");
  facts.switch_test.reset();
  facts.daemon.executors.clear();
  const Check unknown = Find(facts, "time slices");
  EXPECT_EQ(unknown.verdict, Verdict::kOk);
  EXPECT_THAT(unknown.advice, HasSubstr("--switch-test"));
  facts.driver_version = "";
  Expect(facts, "time slices", Verdict::kOk, "the software GPU has none");
}

TEST(Verdicts, Limits) {
  Facts facts = GoodMachine();
  facts.daemon.limits.locked_bytes = 8 << 20;
  Expect(facts, "locked memory", Verdict::kWarning, "8.0 MiB for tallyd", "LimitMEMLOCK");
  facts.daemon.limits.most_tasks = 600;
  facts.daemon.limits.num_tasks = 100;
  Expect(facts, "threads of the cgroup", Verdict::kWarning, "100 of 600 in use for tallyd", "TasksMax");
  facts.daemon.limits.num_tasks = 88;
  Expect(facts, "threads of the cgroup", Verdict::kOk, "88 of 600");
  facts.daemon.is_there = false;
  facts.limits.locked_bytes = 16 << 20;
  Expect(facts, "locked memory", Verdict::kWarning, "16.0 MiB for you");
}

Facts WithProgram(images::ProgramFile file) {
  Facts facts = GoodMachine();
  facts.program = ProgramFact{"./program", std::move(file)};
  return facts;
}

TEST(Verdicts, ProgramsThatCannotLoadTheLibrary) {
  Expect(WithProgram({}), "program", Verdict::kFailed, "statically linked", "link it dynamically");
  images::ProgramFile musl;
  musl.loader = "/lib/ld-musl-x86_64.so.1";
  Expect(WithProgram(musl), "program", Verdict::kFailed, "for musl", "glibc");
  images::ProgramFile library;
  library.is_dynamic = true;
  Expect(WithProgram(library), "program", Verdict::kOk, "a library");
}

TEST(Verdicts, DeviceCodeOfAProgram) {
  images::ProgramFile file;
  file.loader = "/lib64/ld-linux-x86-64.so.2";
  file.is_dynamic = true;
  Expect(WithProgram(file), "its device code", Verdict::kOk, "none in this file");
  file.device_code = {{FatEntryKind::kCubin, 80, 0}, {FatEntryKind::kCubin, 90, 'a'}};
  Expect(WithProgram(file), "its device code", Verdict::kOk, "PTX: none; machine code: sm_80, sm_90a");
  Expect(WithProgram(file), "on the software GPU", Verdict::kWarning, "only machine code", "code=compute_75");
  file.device_code.push_back({FatEntryKind::kPtx, 100, 0});
  Expect(WithProgram(file), "on the software GPU", Verdict::kWarning, "newer GPUs", "code=compute_75");
  file.device_code.push_back({FatEntryKind::kPtx, 75, 0});
  Expect(WithProgram(file), "on the software GPU", Verdict::kOk, "its PTX can run");
}

TEST(Verdicts, TheTableHasALineForEachAdvice) {
  EXPECT_EQ(CheckTable({{"glibc", Verdict::kOk, "2.36", ""}, {"tallyd", Verdict::kFailed, "none", "start one"}}),
            "CHECK                  STATE    FOUND\n"
            "glibc                  ok       2.36\n"
            "tallyd                 failed   none\n"
            "                                -> start one\n"
            "2 checks, 0 warnings, 1 failed\n");
}

}  // namespace
}  // namespace tally::cli
