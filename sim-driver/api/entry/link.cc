// The linker: collects PTX; the result is a fat binary that holds all of it.
#include <mutex>
#include <string>
#include <vector>

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/image.h"

using namespace tally::sim_driver;

namespace {

struct Link {
  std::mutex mutex;
  JitOptions options;
  std::vector<std::string> texts;
  std::vector<std::byte> result;
};

HandleTable<CUlinkState, Link>& Links() {
  static auto& table = *new HandleTable<CUlinkState, Link>("links");
  return table;
}

std::shared_ptr<Link> FindLink(CUlinkState handle) {
  auto link = Links().Find(handle);
  Require(link != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return link;
}

void Add(Link& link, CUjitInputType type, const std::byte* bytes, size_t size) {
  Require(type >= CU_JIT_INPUT_CUBIN && type < CU_JIT_NUM_INPUT_TYPES, CUDA_ERROR_INVALID_VALUE);
  // Machine code, host objects with device code in them, and LTO-IR.
  Require(type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
  std::vector<std::string> texts = PtxOfBytes(bytes, size);
  const std::lock_guard lock(link.mutex);
  // Compiled together by cuLinkComplete: alone, a text may lack symbols of the others.
  for (std::string& text : texts) link.texts.push_back(std::move(text));
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                                              CUlinkState* stateOut) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(stateOut);
    auto link = std::make_shared<Link>();
    link->options = JitOptions(numOptions, options, optionValues);
    *stateOut = Links().Insert(std::move(link));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                                           CUlinkState* stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

TALLY_EXPORT CUresult CUDAAPI cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                                               const char*, unsigned int, CUjit_option*, void**) {
  TALLY_ENTRY({
    EnterContext();
    const auto link = FindLink(state);
    Require(data != nullptr && size != 0, CUDA_ERROR_INVALID_VALUE);
    Add(*link, type, static_cast<const std::byte*>(data), size);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                                            const char* name, unsigned int numOptions, CUjit_option* options,
                                            void** optionValues) {
  return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

TALLY_EXPORT CUresult CUDAAPI cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int,
                                               CUjit_option*, void**) {
  TALLY_ENTRY({
    EnterContext();
    const auto link = FindLink(state);
    const std::vector<std::byte> bytes = ReadFileOrFail(path);
    Add(*link, type, bytes.data(), bytes.size());
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                                            unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

TALLY_EXPORT CUresult CUDAAPI cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  TALLY_ENTRY({
    EnterContext();
    const auto link = FindLink(state);
    RequireOut(cubinOut);
    const std::lock_guard lock(link->mutex);
    Require(!link->texts.empty(), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CompileTexts(link->texts, link->options);
    link->result = ContainerOfTexts(link->texts);
    *cubinOut = link->result.data();
    if (sizeOut != nullptr) *sizeOut = link->result.size();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLinkDestroy(CUlinkState state) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(Links().Remove(state) != nullptr, CUDA_ERROR_INVALID_HANDLE);
  });
}
