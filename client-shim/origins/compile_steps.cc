#include "client-shim/origins/compile_steps.h"

#include <pthread.h>

#include <string_view>
#include <utility>

#include "images/image_kind.h"
#include "images/ptx_text.h"

namespace tally::client_shim {
namespace {

// Null if the bytes are no PTX.
PtxText TextOf(std::span<const std::byte> bytes) {
  if (images::KindOfImage(bytes) != images::ImageKind::kPtxText) return nullptr;
  return PtxTextOf({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

bool SaysItsResults(std::string_view ptx, bool is_contraction_off) {
  return !is_contraction_off || !images::HasContractibleMultiply(ptx);
}

CompileStep StepOf(const CompileInput& input, bool remember) {
  CompileStep step;
  step.key = CompileKeyOf(input);
  if (!remember) return step;
  step.is_remembered = true;
  step.ptx = TextOf(input.source);
  step.is_contraction_off = input.options.find("fmad=false") != std::string_view::npos ||
                            input.options.find("fmad false") != std::string_view::npos ||
                            input.options.find("fma=0") != std::string_view::npos;
  if (step.ptx != nullptr) return step;
  // One compilation is one thread's: two of the same source with different options do not mix.
  const pthread_t thread = ::pthread_self();
  const int32_t numbers[] = {input.architecture, input.flags};
  step.source =
      FileCache::KeyOf({std::as_bytes(std::span(&thread, 1)), std::as_bytes(std::span(numbers)), input.source});
  return step;
}

void LearnFrom(const CompileStep& step, std::span<const std::byte> result, PtxOrigins* origins) {
  if (!step.is_remembered) return;
  if (images::KindOfImage(result) == images::ImageKind::kCubin) {
    PtxText ptx = step.ptx != nullptr ? step.ptx : origins->TakeStep(step.source);
    if (ptx != nullptr && SaysItsResults(*ptx, step.is_contraction_off)) origins->Learn(result, std::move(ptx));
  } else if (step.ptx == nullptr) {
    origins->NoteStep(step.source, TextOf(result));
  }
}

}  // namespace tally::client_shim
