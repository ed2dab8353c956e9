// Machine code for tests, made by the toolkit's ptxas.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace tally::server {

// A cubin for sm_90; empty if ptxas does not take the text.
inline std::vector<std::byte> Assembled(const std::string& ptx, const std::string& options = "") {
  const TemporaryDirectory temporary;
  const std::string text_path = temporary.path() + "/kernels.ptx", cubin_path = temporary.path() + "/kernels.cubin";
  std::ofstream(text_path) << ptx;
  const std::string command =
      std::string(TALLY_TEST_PTXAS) + " -arch=sm_90 " + options + " " + text_path + " -o " + cubin_path;
  if (std::system(command.c_str()) != 0) return {};
  std::ifstream file(cubin_path, std::ios::binary);
  const std::string code((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(code.data());
  return {bytes, bytes + code.size()};
}

}  // namespace tally::server
