#include "pipelines/runtime/compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <span>

#include "base/file_cache.h"

namespace tally::pipelines {
namespace {

constexpr const char* kOptions[] = {"--gpu-architecture=sm_90a", "--std=c++17", "--device-as-default-execution-space"};
constexpr uint64_t kMostCacheBytes = 256 << 20;

struct Nvrtc {
  decltype(&::nvrtcCreateProgram) create;
  decltype(&::nvrtcCompileProgram) compile;
  decltype(&::nvrtcDestroyProgram) destroy;
  decltype(&::nvrtcGetCUBINSize) cubin_size;
  decltype(&::nvrtcGetCUBIN) cubin;
  decltype(&::nvrtcGetProgramLogSize) log_size;
  decltype(&::nvrtcGetProgramLog) log;
  decltype(&::nvrtcVersion) version;
};

std::expected<Nvrtc, std::string> FindNvrtc() {
  void* library = nullptr;
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    return std::unexpected(
        "NVRTC (libnvrtc.so of CUDA 12.4 or newer) was not found; put its folder into LD_LIBRARY_PATH");
  }
  Nvrtc nvrtc{};
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(nvrtc.create, "nvrtcCreateProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.destroy, "nvrtcDestroyProgram");
  find(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  find(nvrtc.cubin, "nvrtcGetCUBIN");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc.log, "nvrtcGetProgramLog");
  find(nvrtc.version, "nvrtcVersion");
  if (missing != nullptr) return std::unexpected(fmt::format("libnvrtc.so is too old: it has no {}", missing));
  return nvrtc;
}

// Empty: nothing is kept.
std::string CacheFolder() {
  if (const char* folder = std::getenv("TALLY_PIPELINES_CACHE"); folder != nullptr) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return fmt::format("{}/tally/pipelines", cache);
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fmt::format("{}/.cache/tally/pipelines", home);
  return {};
}

std::expected<std::vector<char>, std::string> CompileAnew(const Nvrtc& nvrtc, const std::string& source) {
  nvrtcProgram program = nullptr;
  if (nvrtc.create(&program, source.c_str(), "tally_vertical.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) {
    return std::unexpected("NVRTC made no program of the kernel's source");
  }
  std::vector<char> cubin;
  size_t size = 0;
  const nvrtcResult result = nvrtc.compile(program, std::size(kOptions), kOptions);
  if (result == NVRTC_SUCCESS && nvrtc.cubin_size(program, &size) == NVRTC_SUCCESS && size > 0) {
    cubin.resize(size);
    if (nvrtc.cubin(program, cubin.data()) != NVRTC_SUCCESS) cubin.clear();
  }
  std::string log;
  if (cubin.empty() && nvrtc.log_size(program, &size) == NVRTC_SUCCESS && size > 1) {
    log.resize(size);
    nvrtc.log(program, log.data());
  }
  nvrtc.destroy(&program);
  if (cubin.empty())
    return std::unexpected(
        fmt::format("NVRTC did not compile the kernel (result {}): {}", static_cast<int>(result), log));
  return cubin;
}

}  // namespace

std::expected<std::vector<char>, std::string> Compile(const std::string& source) {
  static const std::expected<Nvrtc, std::string> nvrtc = FindNvrtc();
  if (!nvrtc) return std::unexpected(nvrtc.error());
  int major = 0, minor = 0;
  nvrtc->version(&major, &minor);
  const FileCache cache(CacheFolder(), kMostCacheBytes);
  const std::string compiler = fmt::format("sm_90a, NVRTC {}.{}", major, minor);
  const FileCache::Key key = FileCache::KeyOf({FileCache::BytesOf(compiler), FileCache::BytesOf(source)});
  if (const std::optional<FileCache::Content> kept = cache.Find(key)) {
    const auto bytes = kept->span();
    return std::vector<char>(reinterpret_cast<const char*>(bytes.data()),
                             reinterpret_cast<const char*>(bytes.data()) + bytes.size());
  }
  auto cubin = CompileAnew(*nvrtc, source);
  if (cubin) cache.Keep(key, std::as_bytes(std::span(*cubin)));
  return cubin;
}

}  // namespace tally::pipelines
