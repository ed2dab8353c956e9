#include "client-shim/state/missing_code.h"

#include <cuda.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "images/cubin.h"
#include "images/fat_container.h"
#include "images/image_kind.h"

namespace tally::client_shim {
namespace {

constinit std::atomic<bool> g_is_said{false};

// As the sim-driver names its devices. Nothing but this sentence depends on it.
constexpr std::string_view kSoftwareGpu = "Tally software GPU";

// 90 and "a" for sm_90a.
using Architecture = std::pair<uint32_t, std::string_view>;

struct Architectures {
  std::set<Architecture> machine_code;
  std::set<Architecture> ptx;
};

void AddContainer(std::span<const std::byte> container, Architectures& found) {
  const auto entries = images::ReadFatContainer(container);
  if (!entries) return;
  for (const images::FatEntry& entry : *entries) {
    const bool is_arch_specific = (entry.flags & images::fat_flag::kArchSpecific) != 0;
    const bool is_family_specific = (entry.flags & images::fat_flag::kFamilySpecific) != 0;
    const std::string_view suffix = is_arch_specific ? "a" : is_family_specific ? "f" : "";
    if (entry.kind == images::FatEntryKind::kPtx) found.ptx.emplace(entry.arch, suffix);
    if (entry.kind == images::FatEntryKind::kCubin) found.machine_code.emplace(entry.arch, suffix);
  }
}

Architectures ArchitecturesOf(const OfferedCode& offered) {
  Architectures found;
  for (const std::span<const std::byte> part : offered) {
    if (images::KindOfImage(part) == images::ImageKind::kFatContainer) AddContainer(part, found);
    if (images::KindOfImage(part) != images::ImageKind::kCubin) continue;
    if (const auto cubin = images::CubinView::Parse(part)) found.machine_code.emplace(cubin->arch(), "");
  }
  return found;
}

std::string List(std::string_view kind, const std::set<Architecture>& architectures) {
  std::string text;
  for (const auto& [number, suffix] : architectures) {
    text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", kind, number, suffix);
  }
  return text;
}

std::string Describe(const Architectures& found) {
  if (found.machine_code.empty() && found.ptx.empty()) return "no code at all";
  if (found.ptx.empty()) return fmt::format("only machine code ({})", List("sm_", found.machine_code));
  if (found.machine_code.empty()) return fmt::format("only PTX for {}", List("compute_", found.ptx));
  return fmt::format("only machine code ({}) and PTX for {}", List("sm_", found.machine_code),
                     List("compute_", found.ptx));
}

}  // namespace

std::string MissingCodeSentence(const shm::DeviceDescription& device, const OfferedCode& offered) {
  const int32_t* attribute = device.attribute;
  const int capability = attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] * 10 +
                         attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
  const std::string_view name(device.name, ::strnlen(device.name, sizeof(device.name)));
  const bool is_software = name.starts_with(kSoftwareGpu);
  return fmt::format(
      "{}, and this program or a library of it has {}: compile it with -gencode arch=compute_{},code=compute_{}{}",
      is_software ? fmt::format("the software GPU runs PTX (up to compute_{})", capability)
                  : fmt::format("'{}' is a GPU for sm_{}", name, capability),
      Describe(ArchitecturesOf(offered)), capability, capability, is_software ? ", or use a GPU" : "");
}

void ExplainMissingCode(const shm::DeviceDescription& device, const OfferedCode& offered) {
  if (!LogEnabled(LogLevel::kWarning) || g_is_said.exchange(true)) return;
  LOG_WARNING("{}", MissingCodeSentence(device, offered));
}

}  // namespace tally::client_shim
