// Against a driver whose linker does what a test wants.
#include "server/executor/driver/driver_linker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace tally::server {
namespace {

struct Script {
  CUresult add_result = CUDA_SUCCESS;
  const char* log = "";
  std::string input = {};
  CUjitInputType type = CU_JIT_INPUT_PTX;
  std::string name = {};
  char* log_buffer = nullptr;
  int num_open = 0;
};
Script script;
std::string linked;

CUresult Create(unsigned int count, CUjit_option* options, void** values, CUlinkState* link) {
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) script.log_buffer = static_cast<char*>(values[i]);
  }
  ++script.num_open;
  *link = reinterpret_cast<CUlinkState>(0x10);
  return CUDA_SUCCESS;
}
CUresult AddData(CUlinkState, CUjitInputType type, void* data, size_t size_bytes, const char* name, unsigned int,
                 CUjit_option*, void**) {
  script.type = type;
  script.name = name;
  script.input.assign(static_cast<const char*>(data), size_bytes);
  std::strcpy(script.log_buffer, script.log);
  return script.add_result;
}
CUresult Complete(CUlinkState, void** code, size_t* size_bytes) {
  linked = "linked " + script.input;
  *code = linked.data();
  *size_bytes = linked.size();
  return CUDA_SUCCESS;
}
CUresult Destroy(CUlinkState) {
  linked.assign(linked.size(), '!');  // what it made is gone with it
  --script.num_open;
  return CUDA_SUCCESS;
}
CUresult ErrorName(CUresult, const char** name) {
  *name = "CUDA_ERROR_INVALID_IMAGE";
  return CUDA_SUCCESS;
}

Result<std::vector<std::byte>> Link(const Script& wanted) {
  script = wanted;
  DriverTable driver{};
  driver.cuLinkCreate_v2 = &Create;
  driver.cuLinkAddData_v2 = &AddData;
  driver.cuLinkComplete = &Complete;
  driver.cuLinkDestroy = &Destroy;
  driver.cuGetErrorName = &ErrorName;
  constexpr std::string_view kInput = "input";
  return LinkWithDriver(driver, CU_JIT_INPUT_CUBIN, std::as_bytes(std::span(kInput)), "name");
}

TEST(DriverLinkerTest, GivesWhatTheDriverMade) {
  const auto cubin = Link({});
  ASSERT_TRUE(cubin) << cubin.error().ToString();
  EXPECT_TRUE(std::ranges::equal(*cubin, std::as_bytes(std::span(std::string_view("linked input")))));
  EXPECT_EQ(script.type, CU_JIT_INPUT_CUBIN);
  EXPECT_EQ(script.name, "name");
  EXPECT_EQ(script.num_open, 0);
}

TEST(DriverLinkerTest, SaysWhatTheDriverSaid) {
  const auto cubin =
      Link({.add_result = CUDA_ERROR_INVALID_IMAGE, .log = "error : undefined reference to 'f'\nand more"});
  ASSERT_FALSE(cubin);
  EXPECT_EQ(cubin.error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(cubin.error().message(),
            "the driver did not link it (CUDA_ERROR_INVALID_IMAGE: error : undefined reference to 'f')");
  EXPECT_EQ(script.num_open, 0);
}

TEST(DriverLinkerTest, OrNothing) {
  const auto cubin = Link({.add_result = CUDA_ERROR_INVALID_IMAGE});
  EXPECT_EQ(cubin.error().message(), "the driver did not link it (CUDA_ERROR_INVALID_IMAGE)");
}

}  // namespace
}  // namespace tally::server
