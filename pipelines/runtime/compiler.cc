#include "pipelines/runtime/compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/file_cache.h"
#include "base/thread.h"

namespace tally::pipelines {
namespace {

constexpr uint64_t kMostCacheBytes = 256 << 20;

struct Nvrtc {
  decltype(&::nvrtcCreateProgram) create;
  decltype(&::nvrtcCompileProgram) compile;
  decltype(&::nvrtcDestroyProgram) destroy;
  decltype(&::nvrtcGetCUBINSize) cubin_size;
  decltype(&::nvrtcGetCUBIN) cubin;
  decltype(&::nvrtcGetPTXSize) ptx_size;
  decltype(&::nvrtcGetPTX) ptx;
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
  find(nvrtc.ptx_size, "nvrtcGetPTXSize");
  find(nvrtc.ptx, "nvrtcGetPTX");
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

Compiled CompileAnew(const Nvrtc& nvrtc, const std::string& source, const std::string& architecture) {
  nvrtcProgram program = nullptr;
  if (nvrtc.create(&program, source.c_str(), "tally_vertical.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) {
    return std::unexpected("NVRTC made no program of the kernel's source");
  }
  const bool is_ptx = architecture.starts_with("compute_");
  const auto size_of = is_ptx ? nvrtc.ptx_size : nvrtc.cubin_size;
  const auto take = is_ptx ? nvrtc.ptx : nvrtc.cubin;
  const std::string for_gpu = "--gpu-architecture=" + architecture;
  const char* const options[] = {for_gpu.c_str(), "--std=c++17", "--device-as-default-execution-space"};
  std::vector<char> compiled;
  size_t size = 0;
  const nvrtcResult result = nvrtc.compile(program, std::size(options), options);
  if (result == NVRTC_SUCCESS && size_of(program, &size) == NVRTC_SUCCESS && size > 0) {
    compiled.resize(size);
    if (take(program, compiled.data()) != NVRTC_SUCCESS) compiled.clear();
  }
  std::string log;
  if (compiled.empty() && nvrtc.log_size(program, &size) == NVRTC_SUCCESS && size > 1) {
    log.resize(size);
    nvrtc.log(program, log.data());
  }
  nvrtc.destroy(&program);
  if (compiled.empty())
    return std::unexpected(
        fmt::format("NVRTC did not compile the kernel (result {}): {}", static_cast<int>(result), log));
  return compiled;
}

// Threads that end before this does.
struct Joined {
  std::vector<std::thread> threads;
  ~Joined() {
    for (std::thread& thread : threads) thread.join();
  }
};

// In a thread of ours nobody would catch anything.
Compiled CompileWithoutThrowing(const std::string& source, const std::string& architecture) {
  try {
    return Compile(source, architecture);
  } catch (const std::bad_alloc&) {
    return std::unexpected("out of memory");
  }
}

}  // namespace

std::string Architecture(int compute_capability, bool has_wgmma, Code code) {
  if (has_wgmma) return code == Code::kPtx ? "compute_90a" : "sm_90a";
  return code == Code::kPtx ? "compute_80" : fmt::format("sm_{}", compute_capability);
}

Compiled Compile(const std::string& source, const std::string& architecture) {
  static const std::expected<Nvrtc, std::string> nvrtc = FindNvrtc();
  if (!nvrtc) return std::unexpected(nvrtc.error());
  int major = 0, minor = 0;
  nvrtc->version(&major, &minor);
  const FileCache cache(CacheFolder(), kMostCacheBytes);
  const std::string compiler = fmt::format("{}, NVRTC {}.{}", architecture, major, minor);
  const FileCache::Key key = FileCache::KeyOf({FileCache::BytesOf(compiler), FileCache::BytesOf(source)});
  if (const std::optional<FileCache::Content> kept = cache.Find(key)) {
    const auto bytes = kept->span();
    return std::vector<char>(reinterpret_cast<const char*>(bytes.data()),
                             reinterpret_cast<const char*>(bytes.data()) + bytes.size());
  }
  auto compiled = CompileAnew(*nvrtc, source, architecture);
  if (compiled) cache.Keep(key, std::as_bytes(std::span(*compiled)));
  return compiled;
}

std::vector<Compiled> CompileAll(std::span<const std::string> sources, const std::string& architecture) {
  std::vector<Compiled> compiled(sources.size());
  const auto compile = [&](size_t i) { compiled[i] = CompileWithoutThrowing(sources[i], architecture); };
  {
    Joined others;
    others.threads.reserve(sources.size());
    for (size_t i = 1; i < sources.size(); ++i) {
      if (auto thread = StartThread("compile", [&compile, i] { compile(i); })) {
        others.threads.push_back(std::move(*thread));
      } else {
        compile(i);
      }
    }
    if (!sources.empty()) compile(0);
  }
  return compiled;
}

}  // namespace tally::pipelines
