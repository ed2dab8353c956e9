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

// What NVRTC calls a GPU of this compute capability (10 * major + minor), for kernels with wgmma or without.
std::string Architecture(int compute_capability, bool has_wgmma, Code code);

// `architecture`: sm_90a is machine code, compute_90a PTX. Seconds, unless it was compiled before. Any thread.
Compiled Compile(const std::string& source, const std::string& architecture);
// Of each source, in order. All at once, in threads of their own; one after another where none can be had.
std::vector<Compiled> CompileAll(std::span<const std::string> sources, const std::string& architecture);

}  // namespace tally::pipelines
