#include "ptx-transforms/opt/launch_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <expected>
#include <optional>
#include <vector>

namespace tally::ptx_transforms {
namespace {

constexpr uint64_t kFirstAddress = uint64_t{0x7f} << 40;
constexpr uint64_t kApart = uint64_t{1} << 36;  // so that nothing that leaves an allocation meets another by chance

struct NamedSpan {
  std::string name;
  MemorySpan span;
};

class WrittenMemory final : public SegmentMemory {
 public:
  explicit WrittenMemory(const KernelSegments& kernel) {
    for (const ModuleSymbol& symbol : kernel.symbols) Allocate(symbol.size_bytes, symbol.name);
  }
  // Empty name: the next number.
  uint64_t Allocate(uint64_t bytes, std::string name) {
    if (name.empty()) name = fmt::format("@{}", ++num_numbered_);
    spans_.push_back({std::move(name), {kFirstAddress + spans_.size() * kApart, bytes}});
    return spans_.back().span.address;
  }
  MemorySpan AllocationOf(uint64_t address) const override {
    const NamedSpan* found = Find(address);
    return found != nullptr && address - found->span.address < found->span.bytes ? found->span : MemorySpan{};
  }
  MemorySpan SymbolOf(std::string_view name) const override {
    for (const NamedSpan& one : spans_)
      if (one.name == name) return one.span;
    return {};
  }
  // "@1 + 16"
  std::string NameOf(uint64_t address) const {
    const NamedSpan* found = Find(address);
    if (found == nullptr) return fmt::format("{:#x}", address);
    const auto offset = static_cast<int64_t>(address - found->span.address);
    return fmt::format("{} {} {}", found->name, offset < 0 ? '-' : '+', offset < 0 ? -offset : offset);
  }

 private:
  // Whose address is nearest.
  const NamedSpan* Find(uint64_t address) const {
    const uint64_t index = (address - kFirstAddress + kApart / 2) / kApart;
    return address + kApart / 2 >= kFirstAddress && index < spans_.size() ? &spans_[index] : nullptr;
  }

  std::vector<NamedSpan> spans_;
  uint32_t num_numbered_ = 0;
};

std::vector<std::string_view> Split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(by);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

// Decimal or hexadecimal, with a sign or not; modulo 2^64.
std::optional<uint64_t> NumberOf(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const bool is_hexadecimal = text.starts_with("0x");
  if (is_hexadecimal) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return is_negative ? 0 - value : value;
}

// A number, or a pointer: @BYTES[+N].
std::optional<uint64_t> ValueOf(std::string_view text, WrittenMemory& memory) {
  if (!text.starts_with('@')) return NumberOf(text);
  text.remove_prefix(1);
  const size_t sign = text.find_first_of("+-");
  const auto bytes = NumberOf(text.substr(0, sign));
  const auto offset = sign == std::string_view::npos ? 0 : NumberOf(text.substr(sign));
  if (!bytes || !offset || *bytes >= kApart / 4) return std::nullopt;
  return memory.Allocate(*bytes, "") + *offset;
}

std::optional<std::array<uint32_t, 3>> SizeOf(std::string_view text) {
  std::array<uint32_t, 3> size = {1, 1, 1};
  const std::vector<std::string_view> parts = Split(text, ',');
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  for (size_t k = 0; k < parts.size(); ++k) {
    const auto number = NumberOf(parts[k]);
    if (!number || *number == 0 || *number > INT32_MAX) return std::nullopt;
    size[k] = static_cast<uint32_t>(*number);
  }
  return size;
}

std::unexpected<Status> Wrong(std::string_view word, std::string_view why) {
  return Error(StatusCode::kInvalidArgument, fmt::format("--launch: '{}' {}", word, why));
}

}  // namespace

Result<std::string> LaunchAsText(const KernelSegments& kernel, std::string_view launch) {
  const std::vector<std::string_view> words = Split(launch, ' ');
  if (words.size() != kernel.parameters.size() + 2)
    return Wrong(
        launch, fmt::format("must be GRID BLOCK and the {} parameters of {}", kernel.parameters.size(), kernel.kernel));
  WrittenMemory memory(kernel);
  SegmentLaunch sizes;
  for (const bool is_grid : {true, false}) {
    const std::string_view word = words[is_grid ? 0 : 1];
    const auto size = SizeOf(word);
    if (!size) return Wrong(word, "is no size");
    (is_grid ? sizes.grid : sizes.block) = *size;
  }
  std::vector<std::byte> bytes(kernel.parameter_bytes);
  for (size_t k = 0; k < kernel.parameters.size(); ++k) {
    const KernelParameterSlot& slot = kernel.parameters[k];
    uint32_t at = 0;
    for (std::string_view part : Split(words[k + 2], ',')) {
      const bool is_short = part.ends_with('w');
      if (is_short) part.remove_suffix(1);
      const auto value = ValueOf(part, memory);
      if (!value) return Wrong(part, "is neither a number nor @BYTES");
      const uint32_t width = std::min(slot.bytes, is_short ? 4u : 8u);
      if (slot.bytes - at < width) return Wrong(words[k + 2], fmt::format("is more than {} bytes", slot.bytes));
      std::memcpy(bytes.data() + slot.offset + at, &*value, width);
      at += width;
    }
  }
  sizes.parameters = bytes;
  const LaunchSegments found = EvaluateSegments(kernel, sizes, memory);
  std::string text = fmt::format("  launch {}:\n", launch);
  if (!found.barrier.empty())
    return text + fmt::format("    barrier [{}]: {}\n", found.barrier, BarrierMeaning(found.barrier));
  if (found.reads_anything) text += "    may read anything\n";
  for (const Segment& segment : found.segments) {
    const SegmentBox& box = segment.box;
    const std::string rows = box.rows == 1
                                 ? fmt::format("{} bytes", box.row_bytes)
                                 : fmt::format("{} rows of {} bytes, one each {}", box.rows, box.row_bytes, box.pitch);
    text += fmt::format("    {} {} {} from {} (line {})\n", ClassName(segment.of_class), KindName(segment.kind), rows,
                        memory.NameOf(box.address), kernel.accesses[segment.access].position.line);
  }
  for (const ObjectUse& use : found.objects)
    text +=
        fmt::format("    {} {} {}\n", KindName(use.kind),
                    use.object == GlobalAccess::Object::kTexture ? "texture or surface" : "tensor map at parameters",
                    use.object == GlobalAccess::Object::kTexture ? fmt::format("{:#x}", use.value)
                                                                 : fmt::format("[{}]", use.value));
  if (found.segments.empty() && found.objects.empty() && !found.reads_anything) text += "    touches nothing\n";
  return text;
}

}  // namespace tally::ptx_transforms
