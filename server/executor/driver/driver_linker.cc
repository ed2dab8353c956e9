#include "server/executor/driver/driver_linker.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace tally::server {

Result<std::vector<std::byte>> LinkWithDriver(const DriverTable& driver, CUjitInputType type,
                                              std::span<const std::byte> input, const std::string& name) {
  std::array<char, 4096> error_log{};
  std::array options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {error_log.data(), reinterpret_cast<void*>(error_log.size() - 1)};
  CUlinkState link = nullptr;
  void* code = nullptr;
  size_t size_bytes = 0;
  CUresult result =
      driver.cuLinkCreate_v2(static_cast<unsigned int>(options.size()), options.data(), values.data(), &link);
  if (result == CUDA_SUCCESS) {
    // Only read, whatever its type says.
    result = driver.cuLinkAddData_v2(link, type, const_cast<std::byte*>(input.data()), input.size(), name.c_str(), 0,
                                     nullptr, nullptr);
  }
  if (result == CUDA_SUCCESS) result = driver.cuLinkComplete(link, &code, &size_bytes);
  std::vector<std::byte> cubin;
  if (result == CUDA_SUCCESS) {
    const auto* bytes = static_cast<const std::byte*>(code);
    cubin.assign(bytes, bytes + size_bytes);
  }
  if (link != nullptr) driver.cuLinkDestroy(link);
  if (result == CUDA_SUCCESS) return cubin;
  const std::string_view log(error_log.data());
  return Error(StatusCode::kUnavailable,
               fmt::format("the driver did not link it ({}{}{})", CudaErrorName(driver, result),
                           log.empty() ? "" : ": ", log.substr(0, log.find('\n'))));
}

}  // namespace tally::server
