// The images that CMakeLists.txt had made, as bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace tally::images {

inline std::vector<std::byte> ReadImage(const std::string& name) {
  std::ifstream file(std::string(TALLY_TEST_IMAGES_DIR "/") + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

inline std::string ReadTextImage(const std::string& name) {
  const std::vector<std::byte> bytes = ReadImage(name);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace tally::images
