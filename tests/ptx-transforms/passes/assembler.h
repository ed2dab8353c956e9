// ptxas, as judge of what the passes write.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace tally::ptx_transforms {

// What ptxas says against `text` for that architecture ("sm_90"); empty if it accepts it.
inline std::string Assemble(const std::string& text, const std::string& arch) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("tally_assemble_{}.ptx", getpid());
  std::ofstream(path) << text;
  const std::string command = fmt::format("{} -arch={} {} -o /dev/null 2>&1", TALLY_TEST_PTXAS, arch, path.string());
  FILE* pipe = popen(command.c_str(), "r");
  std::string said;
  char buffer[4096];
  for (size_t size; (size = fread(buffer, 1, sizeof buffer, pipe)) > 0;) said.append(buffer, size);
  const int status = pclose(pipe);
  std::filesystem::remove(path);
  return status == 0 ? "" : "ptxas failed: " + said;
}

}  // namespace tally::ptx_transforms
