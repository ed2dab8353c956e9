#include "server/ctl/doctor/verdicts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "proto/control/version.h"
#include "proto/driver/generated/wire_ops.h"
#include "proto/shm/handshake_abi.h"
#include "server/ctl/table.h"

namespace tally::cli {
namespace {

using images::DeviceCode;
using images::FatEntryKind;

// The software GPU says that it is one of compute capability 9.0.
constexpr uint32_t kSoftwareCapability = 90;
// An executor has a thread for each session and each of its program's threads.
constexpr uint64_t kTasksForComfort = 512;
// A program's first pinned arena; most frameworks pin more.
constexpr uint64_t kLockedForComfort = uint64_t{64} << 20;
constexpr uint64_t kCacheForComfort = uint64_t{1} << 30;

std::string Text(images::GlibcVersion version) { return fmt::format("{}.{}", version.major, version.minor); }

// Whether the account may do all of `wanted` (of 07) with the file, by the rules of the file's mode.
bool May(const Account& account, const FileFact& file, mode_t wanted) {
  if (account.uid == 0) return true;
  mode_t granted = file.mode;
  if (file.owner == account.uid) {
    granted >>= 6;
  } else if (std::find(account.groups.begin(), account.groups.end(), file.group) != account.groups.end()) {
    granted >>= 3;
  }
  return (granted & wanted) == wanted;
}

std::string Describe(const FileFact& file) {
  return fmt::format("{} (user {}, mode {:04o})", file.path, file.owner, file.mode & 07777);
}

Check Glibc(const Facts& facts) {
  Check check{"glibc", Verdict::kOk, Text(facts.glibc), ""};
  if (!facts.client_problem.empty()) return check;
  check.found += fmt::format("; the client library needs {}", Text(facts.client_needs));
  if (facts.glibc < facts.client_needs) {
    check.verdict = Verdict::kFailed;
    check.advice = "no program here can load Tally's libcuda.so.1: install Tally's package for this distribution";
  }
  return check;
}

Check ClientLibrary(const Facts& facts) {
  if (facts.client_problem.empty()) return {"client library", Verdict::kOk, facts.client_library, ""};
  return {"client library", Verdict::kFailed, facts.client_problem,
          "install Tally again, or name the directory of its libcuda.so.1 with TALLY_CLIENT_DIR"};
}

Check Driver(const Facts& facts) {
  Check check{"NVIDIA driver", Verdict::kOk, facts.driver_version, ""};
  if (facts.driver_version.empty()) {
    check.verdict = Verdict::kWarning;
    check.found = "none: no NVIDIA driver is loaded";
    check.advice = "programs run on the software GPU; for a real one install NVIDIA's driver";
  } else if (facts.driver_library.empty()) {
    check.verdict = Verdict::kFailed;
    check.found += ", but no libcuda.so.1 of NVIDIA's";
    check.advice = "install the driver's user part (libcuda1), or name the library with TALLY_REAL_LIBCUDA for tallyd";
  } else if (!facts.driver_library_version.empty() && facts.driver_library_version != facts.driver_version) {
    check.verdict = Verdict::kFailed;
    check.found += fmt::format(", but {} is of {}", facts.driver_library, facts.driver_library_version);
    check.advice = "restart the machine, so that the kernel loads the driver that was installed";
  } else {
    check.found += fmt::format(", {}", facts.driver_library);
  }
  return check;
}

Check DeviceFiles(const Facts& facts) {
  Check check{"GPU device files", Verdict::kOk, "", ""};
  if (facts.devices.empty()) {
    const bool should_be = !facts.driver_version.empty();
    check.verdict = should_be ? Verdict::kFailed : Verdict::kOk;
    check.found = should_be ? "none in /dev although the driver is loaded" : "none, as there is no driver";
    if (should_be) check.advice = "run nvidia-modprobe -c 0 -u as root, or start nvidia-persistenced";
    return check;
  }
  const bool has_daemon = facts.daemon.is_there;
  const Account& account = has_daemon ? facts.daemon.account : facts.self;
  const auto& closed =
      std::find_if(facts.devices.begin(), facts.devices.end(), [&](auto& file) { return !May(account, file, 06); });
  const std::string who =
      has_daemon ? fmt::format("tallyd's user {}", account.uid) : fmt::format("user {}", account.uid);
  const std::string gpus = facts.gpus.empty() ? "" : fmt::format(" ({})", fmt::join(facts.gpus, ", "));
  if (closed == facts.devices.end()) {
    check.found = fmt::format("{} files{}, open to {}", facts.devices.size(), gpus, who);
  } else {
    check.verdict = Verdict::kFailed;
    check.found = fmt::format("{} is closed to {}", Describe(*closed), who);
    check.advice =
        fmt::format("add user {} to the group {} or set NVreg_DeviceFileMode=0666", account.uid, closed->group);
  }
  return check;
}

Check SocketDirectory(const Facts& facts) {
  const FileFact& directory = facts.socket_directory;
  Check check{"socket directory", Verdict::kOk, Describe(directory), ""};
  if (!directory.exists) {
    check.found = directory.problem.empty() ? fmt::format("{} does not exist yet: tallyd makes it", directory.path)
                                            : directory.problem;
  } else if ((directory.mode & 022) != 0) {
    check.verdict = Verdict::kFailed;
    check.advice = fmt::format("others could put a socket of their own there, so that tallyd refuses it: chmod go-w {}",
                               directory.path);
  } else if (facts.daemon.is_there && directory.owner != facts.daemon.account.uid) {
    check.verdict = Verdict::kWarning;
    check.advice = fmt::format("it should belong to the user who runs tallyd ({})", facts.daemon.account.uid);
  }
  return check;
}

Check Sockets(const Facts& facts) {
  const FileFact& socket = facts.client_socket;
  Check check{"socket", Verdict::kOk, Describe(socket), ""};
  if (!socket.exists) {
    check.found =
        socket.problem.empty() ? fmt::format("{} does not exist yet: tallyd makes it", socket.path) : socket.problem;
  } else if (!S_ISSOCK(socket.mode)) {
    check.verdict = Verdict::kFailed;
    check.found += " is no socket";
    check.advice = "remove it and start tallyd again";
  } else if (!May(facts.self, socket, 02) || !May(facts.self, facts.socket_directory, 01)) {
    check.verdict = Verdict::kFailed;
    check.found += fmt::format(" is closed to user {}", facts.self.uid);
    check.advice = "let tallyd's administrator admit you ('allowed_uids'), or start your own tallyd";
  }
  return check;
}

Check CacheDirectory(const Facts& facts) {
  const FileFact& directory = facts.cache_directory;
  Check check{"cache directory", Verdict::kOk, Describe(directory), ""};
  if (directory.path.empty()) {
    check.found = "none";
    return check;
  }
  const Account& account = facts.daemon.is_there ? facts.daemon.account : facts.self;
  if (!directory.exists) {
    check.found = directory.problem.empty() ? fmt::format("{} does not exist yet: tallyd makes it", directory.path)
                                            : directory.problem;
    return check;
  }
  if (!May(account, directory, 03)) {
    check.verdict = Verdict::kWarning;
    check.found += fmt::format(" cannot be written by tallyd's user {}", account.uid);
    check.advice = fmt::format("kernels are compiled again by each executor: chown {} {}", account.uid, directory.path);
  } else if (facts.cache_free_bytes < kCacheForComfort) {
    check.verdict = Verdict::kWarning;
    check.found += fmt::format(", {} free", FormatBytes(facts.cache_free_bytes));
    check.advice = "what does not fit is compiled again by each executor: make room, or set cache_directory";
  }
  return check;
}

Check Daemon(const Facts& facts) {
  const DaemonFact& daemon = facts.daemon;
  Check check{"tallyd", Verdict::kOk, "", ""};
  if (!daemon.is_there) {
    check.verdict = Verdict::kFailed;
    check.found = daemon.unreachable;
    check.advice = "start one with 'tallyd', or use 'tally-run --embedded PROGRAM', which needs none";
    return check;
  }
  check.found = fmt::format("process {} of user {}", daemon.pid, daemon.account.uid);
  if (!daemon.silence.empty()) {
    check.found += fmt::format("; {}", daemon.silence);
    check.verdict = Verdict::kWarning;
    check.advice = "more is known to the user who runs tallyd: run tallyctl doctor as that user, or with sudo";
    return check;
  }
  check.found = fmt::format("{}, {}, driver {}", daemon.version, check.found, daemon.driver);
  if (daemon.sees_own_only) check.found += "; you see your own sessions only";
  if (daemon.protocol_version != shm::kProtocolVersion || daemon.api_table_hash != kApiTableHash) {
    check.verdict = Verdict::kFailed;
    check.found += fmt::format("; here is {}, which does not fit to it", control::kVersion);
    check.advice = "restart tallyd, so that it is of the version that is installed";
  }
  return check;
}

// What there is none of, if none that we were told of.
const char* NoExecutor(const DaemonFact& daemon) {
  return daemon.sees_own_only ? "no executor of yours" : "no executor";
}

bool IsSoftware(const ExecutorFact& executor) { return executor.driver.find("software") != std::string::npos; }

// The driver lets time slices be set: asked by tally-switch-test, or seen of the executors that run.
Check TimeSlices(const Facts& facts) {
  Check check{"time slices", Verdict::kOk, "", ""};
  const auto refused = [&](std::string found) {
    check.verdict = Verdict::kWarning;
    check.found = std::move(found);
    check.advice = "best-effort work is held back by look-ahead instead (docs/scheduling.md)";
  };
  if (facts.switch_test) {
    const SwitchFact& test = *facts.switch_test;
    if (!test.problem.empty()) {
      check.verdict = Verdict::kWarning;
      check.found = test.problem;
    } else if (test.acts) {
      check.found = fmt::format("accepted; a switch takes {:.0f} us at p99, {:.0f} with the driver's own slices",
                                test.p99_us, test.own_p99_us);
    } else {
      refused("the driver refuses to set them, or they do not act");
    }
    return check;
  }
  size_t num_hardware = 0;
  for (const ExecutorFact& executor : facts.daemon.executors) {
    if (IsSoftware(executor)) continue;
    ++num_hardware;
    if (executor.is_time_slice_refused) {
      refused(fmt::format("refused by the driver in executor {} ({})", executor.pid, executor.domain));
      return check;
    }
    if (executor.time_slice_us == 0) continue;
    if (!check.found.empty()) check.found += ", ";
    check.found += fmt::format("{} us in {}", executor.time_slice_us, executor.domain);
  }
  if (!check.found.empty()) {
    check.found = "accepted: " + check.found;
  } else if (facts.driver_version.empty() || (num_hardware == 0 && facts.daemon.driver == "sim")) {
    check.found = "the software GPU has none";
  } else {
    check.found = fmt::format("not known: {} uses a GPU now", NoExecutor(facts.daemon));
    check.advice = "run 'tallyctl doctor --switch-test' while the GPU has nothing else to do";
  }
  return check;
}

Check Descheduling(const Facts& facts) {
  Check check{"suspension", Verdict::kOk, "", ""};
  for (const ExecutorFact& executor : facts.daemon.executors) {
    if (executor.descheduling != "refused") continue;
    check.verdict = Verdict::kWarning;
    check.found = fmt::format("refused by the driver in executor {} ({})", executor.pid, executor.domain);
    check.advice = "best-effort work is left to the time slices; nothing needs to be done";
    return check;
  }
  const auto on = std::find_if(facts.daemon.executors.begin(), facts.daemon.executors.end(),
                               [](const ExecutorFact& executor) { return executor.descheduling == "on"; });
  check.found = on != facts.daemon.executors.end()
                    ? fmt::format("accepted in executor {} ({})", on->pid, on->domain)
                    : fmt::format("not in use: {} deschedules its contexts now", NoExecutor(facts.daemon));
  return check;
}

std::string LockedText(uint64_t bytes) { return bytes == kNoLimit ? "unlimited" : FormatBytes(bytes); }

Check LockedMemory(const Facts& facts) {
  const bool has_daemon = facts.daemon.is_there && facts.daemon.limits.is_known;
  const Limits& limits = has_daemon ? facts.daemon.limits : facts.limits;
  Check check{"locked memory", Verdict::kOk,
              fmt::format("{} for {}", LockedText(limits.locked_bytes), has_daemon ? "tallyd" : "you"), ""};
  if (!facts.driver_version.empty() && limits.locked_bytes < kLockedForComfort) {
    check.verdict = Verdict::kWarning;
    check.advice =
        "page-locked memory of programs counts there: start tallyd with 'ulimit -l unlimited' or "
        "LimitMEMLOCK=infinity";
  }
  return check;
}

Check Tasks(const Facts& facts) {
  const bool has_daemon = facts.daemon.is_there && facts.daemon.limits.is_known;
  const Limits& limits = has_daemon ? facts.daemon.limits : facts.limits;
  Check check{"threads of the cgroup", Verdict::kOk, "unlimited", ""};
  if (limits.most_tasks == kNoLimit) return check;
  check.found =
      fmt::format("{} of {} in use for {}", limits.num_tasks, limits.most_tasks, has_daemon ? "tallyd" : "you");
  if (limits.most_tasks < limits.num_tasks + kTasksForComfort) {
    check.verdict = Verdict::kWarning;
    check.advice = "an executor needs a thread for each thread of each program: raise TasksMax= or --pids-limit";
  }
  return check;
}

std::string Name(const DeviceCode& code) {
  const char* kind = code.kind == FatEntryKind::kPtx ? "compute" : code.kind == FatEntryKind::kCubin ? "sm" : "lto";
  return fmt::format("{}_{}{}", kind, code.arch, code.suffix == 0 ? "" : std::string(1, code.suffix));
}

std::string ListOf(const std::vector<DeviceCode>& all, FatEntryKind kind) {
  std::vector<std::string> names;
  for (const DeviceCode& code : all) {
    if (code.kind == kind) names.push_back(Name(code));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void JudgeProgram(const ProgramFact& program, std::vector<Check>* checks) {
  const images::ProgramFile& file = program.file;
  Check kind{"program", Verdict::kOk, "", ""};
  const std::string loader_name = file.loader.substr(file.loader.rfind('/') + 1);
  if (file.is_static_program()) {
    kind.verdict = Verdict::kFailed;
    kind.found = fmt::format("{} is statically linked", program.path);
    kind.advice = "it cannot load Tally's libcuda.so.1: link it dynamically (the CUDA runtime may stay static)";
  } else if (loader_name.starts_with("ld-musl")) {
    kind.verdict = Verdict::kFailed;
    kind.found = fmt::format("{} is for musl ({})", program.path, file.loader);
    kind.advice = "CUDA and Tally's libcuda.so.1 are for glibc: build it for a distribution with glibc";
  } else if (file.loader.empty()) {
    kind.found = fmt::format("{} is a library for glibc", program.path);
  } else {
    kind.found = fmt::format("{} is dynamically linked ({})", program.path, file.loader);
  }
  checks->push_back(std::move(kind));

  const std::string ptx = ListOf(file.device_code, FatEntryKind::kPtx);
  const std::string machine = ListOf(file.device_code, FatEntryKind::kCubin);
  Check code{"its device code", Verdict::kOk, "", ""};
  if (ptx.empty() && machine.empty()) {
    code.found = "none in this file: it is in the program's libraries, or is compiled at run time";
  } else {
    code.found =
        fmt::format("PTX: {}; machine code: {}", ptx.empty() ? "none" : ptx, machine.empty() ? "none" : machine);
  }
  checks->push_back(std::move(code));
  if (ptx.empty() && machine.empty()) return;

  const bool is_usable = std::any_of(file.device_code.begin(), file.device_code.end(), [](const DeviceCode& one) {
    return one.kind == FatEntryKind::kPtx && one.arch <= kSoftwareCapability;
  });
  Check software{"on the software GPU", Verdict::kOk, "its PTX can run", ""};
  if (!is_usable) {
    software.verdict = Verdict::kWarning;
    software.found = ptx.empty() ? "cannot run: it has only machine code" : "cannot run: its PTX is for newer GPUs";
    software.advice = "to run it without a GPU, build it with -gencode arch=compute_75,code=compute_75 as well";
  }
  checks->push_back(std::move(software));
}

}  // namespace

const char* NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      return "failed";
  }
  return "unknown";
}

std::vector<Check> Judge(const Facts& facts) {
  std::vector<Check> checks = {Glibc(facts),           ClientLibrary(facts), Driver(facts),       DeviceFiles(facts),
                               SocketDirectory(facts), Sockets(facts),       Daemon(facts),       CacheDirectory(facts),
                               TimeSlices(facts),      Descheduling(facts),  LockedMemory(facts), Tasks(facts)};
  if (facts.program) JudgeProgram(*facts.program, &checks);
  return checks;
}

std::string CheckTable(const std::vector<Check>& checks) {
  constexpr int kNameWidth = 23, kVerdictWidth = 9;
  std::string text = fmt::format("{:<{}}{:<{}}{}\n", "CHECK", kNameWidth, "STATE", kVerdictWidth, "FOUND");
  size_t num_warnings = 0, num_failed = 0;
  for (const Check& check : checks) {
    num_warnings += check.verdict == Verdict::kWarning;
    num_failed += check.verdict == Verdict::kFailed;
    text += fmt::format("{:<{}}{:<{}}{}\n", check.name, kNameWidth, NameOf(check.verdict), kVerdictWidth, check.found);
    if (!check.advice.empty()) text += fmt::format("{:<{}}-> {}\n", "", kNameWidth + kVerdictWidth, check.advice);
  }
  return text + fmt::format("{} checks, {} warnings, {} failed\n", checks.size(), num_warnings, num_failed);
}

}  // namespace tally::cli
