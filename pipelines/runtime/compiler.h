// CUDA C++ to what a driver loads, by the NVRTC of the process or the machine. What was compiled is kept on disk, by
// content.
#pragma once

#include <expected>
#include <string>
#include <vector>

namespace tally::pipelines {

enum class Code { kMachineCode, kPtx };

// For sm_90a. Seconds, unless it was compiled before. Any thread. PTX ends with a zero. The error is a sentence, with
// NVRTC's log if it failed.
std::expected<std::vector<char>, std::string> Compile(const std::string& source, Code code = Code::kMachineCode);

}  // namespace tally::pipelines
