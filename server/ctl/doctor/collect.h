// Finds the facts out. Asks nobody for longer than a few seconds and needs no privilege: what cannot be read is said
// so.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "base/status.h"
#include "server/ctl/doctor/facts.h"

namespace tally::cli {

struct Question {
  std::string socket;           // tallyd's client socket
  std::string program;          // a path, or a name in $PATH; empty: none
  bool tests_switches = false;  // run tally-switch-test, which takes the GPU for some seconds
  // In front of every absolute path that is read, but the socket's and the program's: tests make up a machine there.
  std::string root;
};

inline constexpr std::chrono::seconds kSwitchTestLimit{60};

// What is being looked at, for a watchdog; the text lives for ever.
using Progress = std::atomic<const char*>;

// Fails only for a program that cannot be judged: one sentence.
Result<Facts> CollectFacts(const Question& question, Progress& progress);

// The parts that read what the kernel says.
std::string KernelDriverVersion(const std::string& root);
std::vector<std::string> GpuModels(const std::string& root);
std::vector<FileFact> DeviceFiles(const std::string& root);
Limits LimitsOf(pid_t pid, const std::string& root);
Account AccountOf(pid_t pid, const std::string& root);
FileFact Stat(const std::string& path);
// kInvalidArgument: it is a script, or no program of this machine; kPermissionDenied, kNotFound. One sentence.
Result<ProgramFact> ReadProgram(const std::string& path);

}  // namespace tally::cli
