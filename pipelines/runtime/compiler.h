// CUDA C++ to what a driver loads, by the NVRTC of the process or the machine. What was compiled is kept on disk, by
// content.
#pragma once

#include <expected>
#include <span>
#include <string>
#include <vector>

namespace tally::pipelines {

enum class Code { kMachineCode, kPtx };

// What the driver takes; PTX ends with a zero. Or a sentence, with NVRTC's log if it failed.
using Compiled = std::expected<std::vector<char>, std::string>;

// For sm_90a. Seconds, unless it was compiled before. Any thread.
Compiled Compile(const std::string& source, Code code = Code::kMachineCode);
// Of each source, in order. All at once, in threads of their own; one after another where none can be had.
std::vector<Compiled> CompileAll(std::span<const std::string> sources, Code code);

}  // namespace tally::pipelines
