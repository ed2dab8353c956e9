// What tallyctl doctor found out, before anybody judges it: plain data, so that tests can make up any machine.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "images/program_file.h"

namespace tally::cli {

// By whose rights files are opened and limits hold.
struct Account {
  uid_t uid = 0;
  std::vector<gid_t> groups;  // all of them
};

// A file as stat sees it.
struct FileFact {
  std::string path;
  bool exists = false;
  std::string problem;  // why that is not known; else empty
  mode_t mode = 0;
  uid_t owner = 0;
  gid_t group = 0;
};

inline constexpr uint64_t kNoLimit = ~uint64_t{0};

// Of one process: us, or tallyd.
struct Limits {
  bool is_known = false;
  uint64_t locked_bytes = kNoLimit;  // RLIMIT_MEMLOCK, soft
  uint64_t most_tasks = kNoLimit;    // pids.max of its cgroups, the lowest
  uint64_t num_tasks = 0;            // pids.current there
};

struct ExecutorFact {
  int32_t pid = 0;
  std::string domain;
  std::string driver;
  uint64_t time_slice_us = 0;
  bool is_time_slice_refused = false;
  std::string descheduling;  // "on", "off", "refused"
};

struct DaemonFact {
  std::string socket;
  bool is_there = false;    // somebody answers at the clients' socket
  std::string unreachable;  // why not, one sentence
  pid_t pid = 0;
  Account account;
  Limits limits;
  // From the control socket, or the view socket of other users; `silence` says why there is nothing.
  std::string silence;
  bool sees_own_only = false;  // at the view socket: `executors` are those with sessions of ours
  std::string version;
  uint32_t protocol_version = 0;
  uint64_t api_table_hash = 0;
  std::string driver;
  std::optional<std::string> cache_directory;  // empty: none; nothing: not told
  std::vector<ExecutorFact> executors;
};

// What tally-switch-test says.
struct SwitchFact {
  std::string problem;  // why there are no figures
  bool acts = false;
  double p99_us = 0;
  double own_p99_us = 0;
};

struct ProgramFact {
  std::string path;
  images::ProgramFile file;
};

struct Facts {
  Account self;
  Limits limits;
  images::GlibcVersion glibc;  // of this machine
  std::string client_library;
  std::string client_problem;  // why it is not known what the client library needs
  images::GlibcVersion client_needs;
  std::string driver_version;          // of the kernel's driver; empty: there is none
  std::string driver_library;          // NVIDIA's libcuda.so.1, links followed; empty: not found
  std::string driver_library_version;  // from its file's name; empty: it says none
  std::vector<std::string> gpus;       // their models
  std::vector<FileFact> devices;       // the GPUs' device files
  FileFact socket_directory, client_socket;
  FileFact cache_directory;  // no path: there is none
  uint64_t cache_free_bytes = kNoLimit;
  DaemonFact daemon;
  std::optional<SwitchFact> switch_test;  // if it was asked for
  std::optional<ProgramFact> program;
};

}  // namespace tally::cli
