#include "client-shim/origins/compile_cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace tally::client_shim {
namespace {

constexpr uint64_t kDefaultMaxBytes = uint64_t{1} << 30;  // as NVIDIA's driver

const char* Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

FileCache::Key CompileKeyOf(const CompileInput& input) {
  const int32_t numbers[] = {input.kind, input.architecture, input.flags};
  return FileCache::KeyOf({std::as_bytes(std::span(numbers)), input.source, BytesOf(input.options),
                           BytesOf(input.platform), BytesOf(input.compiler_build)});
}

FileCache CompileCacheOfEnvironment() {
  const std::string_view disabled = Environment("CUDA_CACHE_DISABLE");
  if (!disabled.empty() && disabled != "0") return {"", 0};
  const uint64_t bound = std::strtoull(Environment("CUDA_CACHE_MAXSIZE"), nullptr, 10);
  const uint64_t max_bytes = bound != 0 ? bound : kDefaultMaxBytes;
  if (const std::string_view path = Environment("CUDA_CACHE_PATH"); !path.empty())
    return {fmt::format("{}/tally-compiled", path), max_bytes};
  if (const std::string_view path = Environment("XDG_CACHE_HOME"); !path.empty())
    return {fmt::format("{}/tally/compiled", path), max_bytes};
  if (const std::string_view path = Environment("HOME"); !path.empty())
    return {fmt::format("{}/.cache/tally/compiled", path), max_bytes};
  return {"", 0};
}

}  // namespace tally::client_shim
