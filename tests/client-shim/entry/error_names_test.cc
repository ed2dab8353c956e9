#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/client-shim/fake_executor.h"

namespace tally::client_shim {
namespace {

TEST(ShimLibrary, NamesEveryErrorOfTheHeader) {
  std::ifstream header(TALLY_CUDA_ROOT "/include/cuda.h");
  ASSERT_TRUE(header.is_open());
  std::string line;
  size_t count = 0;
  while (std::getline(header, line)) {
    char name[128];
    int value = 0;
    if (std::sscanf(line.c_str(), " %127[A-Z_0-9] = %d", name, &value) != 2) continue;
    if (std::strncmp(name, "CUDA_ERROR_", 11) != 0 && std::strcmp(name, "CUDA_SUCCESS") != 0) continue;
    ++count;
    const char* text = nullptr;
    EXPECT_EQ(SHIM(cuGetErrorName)(static_cast<CUresult>(value), &text), CUDA_SUCCESS) << name;
    EXPECT_STREQ(text, name);
    EXPECT_EQ(SHIM(cuGetErrorString)(static_cast<CUresult>(value), &text), CUDA_SUCCESS) << name;
    EXPECT_TRUE(text != nullptr && *text != '\0') << name;
  }
  EXPECT_GT(count, 90u);
  const char* text = "left";
  EXPECT_EQ(SHIM(cuGetErrorName)(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

}  // namespace
}  // namespace tally::client_shim
