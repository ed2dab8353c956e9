#include "server/executor/issue/access_finder.h"

#include <algorithm>
#include <cstring>

#include "server/executor/issue/declared_accesses.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_hints.h"
#include "server/executor/issue/launch_stream.h"

namespace tally::server {
namespace {

// Whether the driver takes the parameters that the PTX has.
bool HaveSameLayout(const Kernel& kernel, const ptx_transforms::KernelSegments& segments) {
  return std::equal(kernel.layout.begin(), kernel.layout.end(), segments.parameters.begin(), segments.parameters.end(),
                    [](const shm::ParameterLayout& real, const ptx_transforms::KernelParameterSlot& text) {
                      return real.offset_bytes == text.offset && real.size_bytes == text.bytes;
                    });
}

// What about the launch itself makes it one that nothing may run beside; null: nothing.
const char* WhyAlone(const PendingLaunch& launch) {
  if ((launch.flags & shm::kLaunchCooperative) != 0) return "cooperative";
  if (!AreHints(launch.attributes)) return "attributes";
  const bool is_complete = launch.parameter_bytes >= launch.kernel->parameter_bytes &&
                           launch.parameters.size() >= launch.kernel->parameter_bytes;
  return launch.has_own_buffer() || !is_complete ? "parameters" : nullptr;
}

}  // namespace

const LaunchAccesses& AccessFinder::Of(const PendingLaunch& launch) {
  if (launch.is_transfer()) {
    if (const char* why = FindAccesses(launch.transfer, memory_, &declared_)) return Barrier(why);
    return declared_;
  }
  if ((launch.flags & (shm::kLaunchDeclared | shm::kLaunchOpaque)) != 0) [[unlikely]] {
    if (const char* why = WhyAlone(launch)) return Barrier(why);
    if (const char* why = FindDeclared(launch, memory_, &declared_)) return Barrier(why);
    return declared_;
  }
  KernelAccesses::OnDevice& here = Here(*launch.kernel, launch.stream->device);
  if (here.found == nullptr) Look(*launch.kernel, here);
  if (here.barrier != nullptr) return Barrier(here.barrier);
  if (const char* why = WhyAlone(launch)) return Barrier(why);

  const std::span<const std::byte> parameters = launch.parameters.bytes().first(launch.kernel->parameter_bytes);
  inputs_.clear();
  for (const ptx_transforms::ParameterPiece& piece : here.found->inputs) {
    const size_t begin = std::min<size_t>(piece.offset, parameters.size());
    const size_t end = std::min<size_t>(begin + piece.bytes, parameters.size());
    inputs_.insert(inputs_.end(), parameters.begin() + static_cast<long>(begin),
                   parameters.begin() + static_cast<long>(end));
  }
  const RememberedAccesses::Launch asked = {here.awaited->number(), launch.shape.grid, launch.shape.block, inputs_};
  // Asked first: what changes while it is looked at makes what was seen old.
  const uint64_t generation = memory_.generation();
  if (const LaunchAccesses* known = remembered_.Find(asked, generation, memory_)) return *known;
  ++num_evaluations_;
  const ptx_transforms::SegmentLaunch evaluated = {
      .grid = launch.shape.grid, .block = launch.shape.block, .parameters = parameters};
  MemoryAnswers answers;
  LaunchAccesses accesses = AccessesOf(here.found->segments, evaluated, memory_, here.variables, answers);
  return remembered_.Remember(asked, generation, std::move(answers), std::move(accesses));
}

KernelAccesses::OnDevice& AccessFinder::Here(Kernel& kernel, int device) {
  if (kernel.accesses == nullptr) kernel.accesses = std::make_shared<KernelAccesses>();
  std::vector<KernelAccesses::OnDevice>& devices = kernel.accesses->devices;
  for (KernelAccesses::OnDevice& here : devices) {
    if (here.device == device) return here;
  }
  KernelAccesses::OnDevice& here = devices.emplace_back();
  here.device = device;
  return here;
}

void AccessFinder::Look(const Kernel& kernel, KernelAccesses::OnDevice& here) const {
  if (here.awaited == nullptr) {
    here.awaited = compiler_.Find(OwnerOf(kernel).bytes, NameOf(driver_, kernel), devices_.Capability(here.device));
    if (here.awaited == nullptr) return;
  }
  here.found = here.awaited->found();
  if (here.found == nullptr) return;
  here.barrier = here.found->barrier;
  if (here.barrier != nullptr) return;
  const ptx_transforms::KernelSegments& segments = here.found->segments;
  if (!HaveSameLayout(kernel, segments)) {
    here.barrier = "parameters";
    return;
  }
  for (const ptx_transforms::ModuleSymbol& symbol : segments.symbols) {
    const VariablePlace place = VariableOf(driver_, *kernel.image, symbol.name);
    here.variables.push_back({place.address, place.size_bytes});
  }
}

const LaunchAccesses& AccessFinder::Barrier(const char* code) {
  barrier_.barrier = code;
  return barrier_;
}

}  // namespace tally::server
