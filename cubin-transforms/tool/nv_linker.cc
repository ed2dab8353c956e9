#include "cubin-transforms/tool/nv_linker.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cubin-transforms/add_gates.h"

namespace tally::cubin_transforms {
namespace {

constexpr std::array kUsualPlaces = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so",
                                     "/usr/local/cuda/lib64/libnvJitLink.so"};

// Of nvJitLink.h, in every version: whichever is found is used, not the one that this was compiled with.
using Handle = struct nvJitLink*;
constexpr int kSuccess = 0;
constexpr int kInputCubin = 1;

}  // namespace

struct NvLinker::Functions {
  int (*create)(Handle*, uint32_t num_options, const char* const* options) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*add_data)(Handle, int type, const void* data, size_t size_bytes, const char* name) = nullptr;
  int (*complete)(Handle) = nullptr;
  int (*cubin_size)(Handle, size_t* size_bytes) = nullptr;
  int (*cubin)(Handle, void* cubin) = nullptr;
  int (*error_log_size)(Handle, size_t* size_bytes) = nullptr;
  int (*error_log)(Handle, char* log) = nullptr;
};

Result<NvLinker> NvLinker::Open(const std::string& path) {
  void* library = nullptr;
  if (!path.empty()) {
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    for (size_t i = 0; i < kUsualPlaces.size() && library == nullptr; ++i)
      library = ::dlopen(kUsualPlaces[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return Error(StatusCode::kNotFound, "no such library");
  static Functions functions;
  bool has_all = true;
  const auto find = [&]<typename F>(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    has_all &= function != nullptr;
  };
  find(functions.create, "nvJitLinkCreate");
  find(functions.destroy, "nvJitLinkDestroy");
  find(functions.add_data, "nvJitLinkAddData");
  find(functions.complete, "nvJitLinkComplete");
  find(functions.cubin_size, "nvJitLinkGetLinkedCubinSize");
  find(functions.cubin, "nvJitLinkGetLinkedCubin");
  find(functions.error_log_size, "nvJitLinkGetErrorLogSize");
  find(functions.error_log, "nvJitLinkGetErrorLog");
  if (!has_all) return Error(StatusCode::kNotFound, "it is no libnvJitLink, or one of another kind");
  return NvLinker(&functions);
}

Result<std::vector<std::byte>> NvLinker::Link(const FoundCubin& cubin) const {
  const std::string arch = fmt::format("-arch=sm_{}{}", cubin.arch, cubin.is_arch_specific ? "a" : "");
  std::array options = {arch.c_str()};
  Handle handle = nullptr;
  int result = functions_->create(&handle, options.size(), options.data());
  if (result != kSuccess) return Error(StatusCode::kFailedPrecondition, "no linker for " + arch);
  std::vector<std::byte> linked;
  size_t size_bytes = 0;
  result = functions_->add_data(handle, kInputCubin, cubin.bytes->data(), cubin.bytes->size(), "it");
  if (result == kSuccess) result = functions_->complete(handle);
  if (result == kSuccess) result = functions_->cubin_size(handle, &size_bytes);
  if (result == kSuccess) {
    linked.resize(size_bytes);
    result = functions_->cubin(handle, linked.data());
  }
  std::string log;
  if (result != kSuccess && functions_->error_log_size(handle, &size_bytes) == kSuccess) {
    log.resize(size_bytes);
    functions_->error_log(handle, log.data());
    log.resize(std::min(log.size(), log.find_first_of(std::string_view("\n\0", 2))));
  }
  functions_->destroy(&handle);
  if (result != kSuccess) return Error(StatusCode::kFailedPrecondition, "it cannot be linked: " + log);
  return linked;
}

Result<std::vector<std::byte>> LinkIfNeeded(const FoundCubin& cubin, const NvLinker* linker, std::string* why_not) {
  if (!cubin.bytes || !IsRelocatable(*cubin.bytes)) return cubin.bytes;
  auto linked = linker != nullptr ? linker->Link(cubin) : Error(StatusCode::kNotFound, "no libnvJitLink was found");
  if (linked) return linked;
  if (why_not != nullptr) *why_not = linked.error().message();
  return cubin.bytes;
}

}  // namespace tally::cubin_transforms
