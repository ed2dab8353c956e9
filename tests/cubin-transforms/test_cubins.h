// The cubins that CMakeLists.txt had made, as bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tally::cubin_transforms {

inline constexpr int kTestArchitectures[] = {75, 80, 89, 90, 100, 120};

inline std::vector<std::byte> ReadCubin(const std::string& name) {
  std::ifstream file(std::string(TALLY_TEST_CUBINS_DIR "/") + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}
inline std::vector<std::byte> ReadCubin(int arch) { return ReadCubin("sm_" + std::to_string(arch) + ".cubin"); }

}  // namespace tally::cubin_transforms
