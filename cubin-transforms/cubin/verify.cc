// VerifyGated: what may differ between a cubin and its gated form, written down a second time and on purpose without
// the writer's code, so that a mistake there does not hide here.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/gate/gate_template.h"
#include "images/byte_reader.h"
#include "images/elf_view.h"

namespace tally::cubin_transforms {
namespace {

using images::ElfSection;
using images::ElfSymbol;
using images::ElfView;
using images::Load;
using images::NvAttribute;

template <typename... Args>
Status Wrong(fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kFailedPrecondition, fmt::format(format, std::forward<Args>(args)...));
}

bool IsSame(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// What a section of a gated cubin is.
enum class Role : uint8_t { kUntouched, kCode, kRecords, kConstants, kModuleRecords, kSymbols };

struct GatedParts {
  size_t symbol = 0, text = 0, records = 0, constants = 0;
  uint32_t hidden_at = 0;  // in the constant bank
};

class Comparison {
 public:
  Comparison(std::span<const std::byte> old_bytes, std::span<const std::byte> new_bytes, const ElfView& old_elf,
             const ElfView& new_elf)
      : old_bytes_(old_bytes), new_bytes_(new_bytes), old_(old_elf), new_(new_elf) {}

  Status Check() {
    TALLY_RETURN_IF_ERROR(CheckHeaders());
    TALLY_RETURN_IF_ERROR(FindGated());
    TALLY_RETURN_IF_ERROR(CheckSections());
    TALLY_RETURN_IF_ERROR(CheckPlaces());
    TALLY_RETURN_IF_ERROR(CheckSegments());
    TALLY_RETURN_IF_ERROR(CheckSymbols());
    TALLY_RETURN_IF_ERROR(CheckModuleRecords());
    for (GatedParts& parts : gated_) {
      for (const Status& status : {CheckRecords(parts), CheckConstants(parts), CheckCode(parts)})
        if (!status.ok()) return status.With(old_.symbols()[parts.symbol].name);
    }
    return OkStatus();
  }

 private:
  Status CheckHeaders();
  Status FindGated();
  Status CheckSections();
  Status CheckPlaces();
  Status CheckSegments();
  Status CheckSymbols();
  Status CheckModuleRecords();
  Status CheckRecords(GatedParts& parts);
  Status CheckConstants(const GatedParts& parts);
  Status CheckCode(const GatedParts& parts);
  const ElfSection& Old(size_t i) const { return old_.sections()[i]; }
  const ElfSection& New(size_t i) const { return new_.sections()[i]; }
  uint64_t gate_at(const GatedParts& parts) const { return (Old(parts.text).size + 127) / 128 * 128; }

  const std::span<const std::byte> old_bytes_, new_bytes_;
  const ElfView& old_;
  const ElfView& new_;
  const GateTemplate* gate_ = nullptr;
  std::vector<Role> roles_;  // by section
  std::vector<GatedParts> gated_;
};

Status Comparison::CheckHeaders() {
  Elf64_Ehdr expected = old_.header();
  expected.e_shoff = new_.header().e_shoff;
  expected.e_phoff = new_.header().e_phoff;
  if (std::memcmp(&expected, &new_.header(), sizeof(expected)) != 0) return Wrong("the ELF header differs");
  if (old_.sections().size() != new_.sections().size()) return Wrong("sections were added or taken away");
  if (old_.symbols().size() != new_.symbols().size()) return Wrong("symbols were added or taken away");
  if (expected.e_phnum > 64) return Wrong("it has too many segments");  // each is compared with every section
  const uint32_t flags = expected.e_flags;
  gate_ = FindGateTemplate(expected.e_ident[EI_OSABI] == 0x41 ? (flags >> 8) & 0xFFFF : flags & 0xFF);
  return gate_ == nullptr ? Wrong("there is no gate for its architecture") : OkStatus();
}

// A kernel whose code grew claims to be gated; its three sections may differ, and nothing else's.
Status Comparison::FindGated() {
  roles_.assign(old_.sections().size(), Role::kUntouched);
  const auto claim = [&](size_t section, Role role) {
    if (roles_[section] != Role::kUntouched) return false;
    roles_[section] = role;
    return true;
  };
  std::vector<std::pair<std::string_view, size_t>> by_name;
  for (size_t i = 0; i < old_.sections().size(); ++i) {
    by_name.emplace_back(Old(i).name, i);
    if (Old(i).type == SHT_SYMTAB) roles_[i] = Role::kSymbols;
    if (Old(i).name == ".nv.info") roles_[i] = Role::kModuleRecords;
  }
  std::ranges::sort(by_name);
  const auto find = [&](const std::string& name) {
    const auto [first, last] = std::ranges::equal_range(by_name, name, {}, [](const auto& pair) { return pair.first; });
    return last - first == 1 ? first->second : 0;
  };
  for (size_t i = 0; i < old_.symbols().size(); ++i) {
    const ElfSymbol& symbol = old_.symbols()[i];
    if (symbol.type != STT_FUNC || (symbol.other & 0x10) == 0 || symbol.section >= old_.sections().size()) continue;
    GatedParts parts;
    parts.symbol = i;
    parts.text = symbol.section;
    if (Old(parts.text).size == New(parts.text).size) continue;
    const std::string name(symbol.name);
    parts.records = find(".nv.info." + name);
    parts.constants = find(".nv.constant0." + name);
    if (parts.records == 0 || parts.constants == 0 || symbol.value != 0 || !claim(parts.text, Role::kCode) ||
        !claim(parts.records, Role::kRecords) || !claim(parts.constants, Role::kConstants))
      return Wrong("{}: the gated kernel shares a section or lacks one", name);
    gated_.push_back(parts);
  }
  return gated_.empty() ? Wrong("no kernel is gated") : OkStatus();
}

Status Comparison::CheckSections() {
  for (size_t i = 0; i < old_.sections().size(); ++i) {
    const ElfSection &a = Old(i), &b = New(i);
    if (a.name != b.name || a.type != b.type || a.link != b.link || a.flags != b.flags || a.alignment != b.alignment)
      return Wrong("section {} has another header", a.name);
    const auto raw_old = Load<Elf64_Shdr>(old_bytes_, old_.header().e_shoff + i * sizeof(Elf64_Shdr));
    const auto raw_new = Load<Elf64_Shdr>(new_bytes_, new_.header().e_shoff + i * sizeof(Elf64_Shdr));
    if (raw_old.sh_name != raw_new.sh_name || raw_old.sh_addr != raw_new.sh_addr ||
        raw_old.sh_entsize != raw_new.sh_entsize)
      return Wrong("section {} has another header", a.name);
    const uint32_t registers = std::max(a.info >> 24, gate_->registers);
    const bool may_raise = roles_[i] == Role::kCode && a.info >> 24 != 0;
    if (b.info != (may_raise ? (a.info & 0xFFFFFF) | registers << 24 : a.info))
      return Wrong("section {} has another sh_info", a.name);
    if (images::HasBytes(a.type) && a.alignment > 1 && a.offset % a.alignment == 0 && b.offset % a.alignment != 0)
      return Wrong("section {} is no longer aligned to {}", a.name, a.alignment);
    switch (roles_[i]) {
      case Role::kUntouched:
        if (a.size != b.size || !IsSame(a.content, b.content)) return Wrong("section {} has changed", a.name);
        break;
      case Role::kModuleRecords:
      case Role::kSymbols:
        if (a.size != b.size) return Wrong("section {} has another size", a.name);
        break;
      case Role::kCode:
      case Role::kRecords:
      case Role::kConstants:
        if (b.size <= a.size) return Wrong("section {} has not grown", a.name);
        break;
    }
  }
  return OkStatus();
}

// Everything stands where it must if each grown section got room behind it in steps of 128 bytes, and what has changed
// is nobody else's.
Status Comparison::CheckPlaces() {
  std::vector<std::pair<uint64_t, uint64_t>> rooms;  // {old end of a grown section, bytes of room}
  for (size_t i = 0; i < old_.sections().size(); ++i)
    if (New(i).size != Old(i).size)
      rooms.emplace_back(Old(i).offset + Old(i).size, (New(i).size - Old(i).size + 127) / 128 * 128);
  std::ranges::sort(rooms);
  for (size_t i = 1; i < rooms.size(); ++i) rooms[i].second += rooms[i - 1].second;
  const auto moved = [&](uint64_t offset) {
    const auto next = std::ranges::upper_bound(rooms, offset, {}, [](const auto& room) { return room.first; });
    return offset + (next == rooms.begin() ? 0 : std::prev(next)->second);
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < old_.sections().size(); ++i) {
    if (New(i).offset != (Old(i).type == SHT_NULL ? Old(i).offset : moved(Old(i).offset)))
      return Wrong("section {} is misplaced", Old(i).name);
    if (images::HasBytes(Old(i).type) && Old(i).size != 0) order.push_back(i);
  }
  if (new_bytes_.size() != moved(old_bytes_.size())) return Wrong("the file has another size");
  for (uint64_t k = 0; k < old_.header().e_phnum; ++k) {
    const auto offset_of = [&](std::span<const std::byte> bytes, const ElfView& elf) {
      return Load<Elf64_Phdr>(bytes, elf.header().e_phoff + k * sizeof(Elf64_Phdr)).p_offset;
    };
    if (offset_of(new_bytes_, new_) != moved(offset_of(old_bytes_, old_))) return Wrong("segment {} is misplaced", k);
  }
  std::ranges::stable_sort(order, {}, [&](size_t i) { return New(i).offset; });
  uint64_t end = 0;
  Role last = Role::kUntouched;
  for (const size_t i : order) {
    const bool is_shared = New(i).offset < end && (last != Role::kUntouched || roles_[i] != Role::kUntouched);
    if (is_shared) return Wrong("section {} lies over another one", New(i).name);
    if (New(i).offset + New(i).size <= end) continue;
    end = New(i).offset + New(i).size;
    last = roles_[i];
  }
  const Elf64_Ehdr& header = new_.header();
  const auto is_free = [&](uint64_t begin, uint64_t bytes) {
    return std::ranges::none_of(
        order, [&](size_t i) { return New(i).offset < begin + bytes && begin < New(i).offset + New(i).size; });
  };
  if (!is_free(0, sizeof(header)) || !is_free(header.e_shoff, new_.sections().size() * sizeof(Elf64_Shdr)) ||
      (header.e_phnum != 0 && !is_free(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr))))
    return Wrong("a section lies over a table");
  return OkStatus();
}

Status Comparison::CheckSegments() {
  for (uint64_t k = 0; k < old_.header().e_phnum; ++k) {
    const auto a = Load<Elf64_Phdr>(old_bytes_, old_.header().e_phoff + k * sizeof(Elf64_Phdr));
    const auto b = Load<Elf64_Phdr>(new_bytes_, new_.header().e_phoff + k * sizeof(Elf64_Phdr));
    if (a.p_type != b.p_type || a.p_flags != b.p_flags || a.p_vaddr != b.p_vaddr || a.p_paddr != b.p_paddr ||
        a.p_align != b.p_align || b.p_filesz - a.p_filesz != b.p_memsz - a.p_memsz)
      return Wrong("segment {} has another header", k);
    if (a.p_filesz == 0) continue;
    for (size_t i = 0; i < old_.sections().size(); ++i) {
      if (!images::HasBytes(Old(i).type) || Old(i).size == 0) continue;
      const bool was_inside = Old(i).offset >= a.p_offset && Old(i).offset + Old(i).size <= a.p_offset + a.p_filesz;
      const bool is_inside = New(i).offset >= b.p_offset && New(i).offset + New(i).size <= b.p_offset + b.p_filesz;
      if (was_inside != is_inside) return Wrong("section {} has left segment {}, or come into it", Old(i).name, k);
    }
  }
  return OkStatus();
}

Status Comparison::CheckSymbols() {
  const auto table = std::ranges::find(roles_, Role::kSymbols) - roles_.begin();
  if (std::ranges::count(roles_, Role::kSymbols) != 1) return Wrong("there is not one symbol table");
  const ElfSection &a = Old(static_cast<size_t>(table)), &b = New(static_cast<size_t>(table));
  std::vector<std::byte> expected(a.content.begin(), a.content.end());
  for (const GatedParts& parts : gated_) {
    const uint64_t size = New(parts.text).size;
    std::memcpy(&expected[parts.symbol * sizeof(Elf64_Sym) + offsetof(Elf64_Sym, st_size)], &size, sizeof(size));
  }
  return IsSame(expected, b.content) ? OkStatus() : Wrong("other symbols than the gated kernels' have changed");
}

Status Comparison::CheckModuleRecords() {
  constexpr int kNotGated = -1;
  std::vector<int> num_records(old_.symbols().size(), kNotGated);
  for (const GatedParts& parts : gated_) num_records[parts.symbol] = 0;
  for (size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] != Role::kModuleRecords) continue;
    const auto old_records = images::ReadNvAttributes(Old(i).content),
               new_records = images::ReadNvAttributes(New(i).content);
    if (!old_records || !new_records || old_records->size() != new_records->size())
      return Wrong(".nv.info has other records");
    for (size_t k = 0; k < old_records->size(); ++k) {
      const NvAttribute &a = (*old_records)[k], &b = (*new_records)[k];
      std::vector<std::byte> expected(a.whole.begin(), a.whole.end());
      if (a.id == 0x2F && a.payload.size() == 8 && Load<uint32_t>(a.payload, 0) < num_records.size() &&
          num_records[Load<uint32_t>(a.payload, 0)] != kNotGated) {
        const uint32_t registers = std::max(Load<uint32_t>(a.payload, 4), gate_->registers);
        std::memcpy(&expected[8], &registers, sizeof(registers));
        ++num_records[Load<uint32_t>(a.payload, 0)];
      }
      if (!IsSame(expected, b.whole)) return Wrong("a record of .nv.info has changed");
    }
  }
  for (const GatedParts& parts : gated_) {
    const int count = num_records[parts.symbol];
    // Without a record its section says how many; more must not be needed then.
    if (count != 1 && !(count == 0 && Old(parts.text).info >> 24 >= gate_->registers))
      return Wrong("a gated kernel has no record of its registers, or several");
  }
  return OkStatus();
}

// The old records in their order, with what the gate adds in, behind and before them.
Status Comparison::CheckRecords(GatedParts& parts) {
  const auto old_records = images::ReadNvAttributes(Old(parts.records).content);
  const auto new_records = images::ReadNvAttributes(New(parts.records).content);
  if (!old_records || !new_records) return Wrong("its .nv.info cannot be read");
  uint32_t end = 0, num_parameters = 0;
  bool is_v2 = false;
  for (const NvAttribute& record : *old_records) {
    if (record.id != 0x17 && record.id != 0x45) continue;
    if (record.payload.size() != 12) return Wrong("odd record of a parameter");
    const auto packed = Load<uint32_t>(record.payload, 8);
    is_v2 |= record.id == 0x45;
    end = std::max(end, Load<uint16_t>(record.payload, 6) + (record.id == 0x45 ? packed & 0xFFFFFF : packed >> 18));
    ++num_parameters;
  }
  const uint32_t hidden = (end + 15) / 16 * 16;
  const uint32_t bits = is_v2 ? 16 : uint32_t{16} << 18 | gate_->parameter_bits;
  const uint64_t gate = gate_at(parts);

  const auto has_words = [](std::span<const std::byte> payload, size_t from, std::span<const uint32_t> words,
                            uint64_t plus) {
    if (payload.size() != from + 4 * words.size()) return false;
    for (size_t i = 0; i < words.size(); ++i)
      if (Load<uint32_t>(payload, from + 4 * i) != words[i] + plus) return false;
    return true;
  };
  const auto is_hidden_parameter = [&](const NvAttribute& record) {
    return record.id == (is_v2 ? 0x45 : 0x17) && record.payload.size() == 12 &&
           Load<uint32_t>(record.payload, 0) == 0 && Load<uint16_t>(record.payload, 4) == num_parameters &&
           Load<uint16_t>(record.payload, 6) == hidden && Load<uint32_t>(record.payload, 8) == bits;
  };
  const auto words_of = [&](uint8_t id) -> std::pair<std::span<const uint32_t>, uint64_t> {
    return id == 0x1C   ? std::pair(gate_->exits, gate)
           : id == 0x28 ? std::pair(gate_->warp_wide, gate)
                        : std::pair(gate_->masks, uint64_t{0});
  };
  bool has_hidden = false, has_bank = false, has_bank_bytes = false, seen[256] = {};
  uint32_t bank_offset = gate_->parameter_base;
  size_t next = 0;  // among the old ones
  for (const NvAttribute& record : *new_records) {
    const NvAttribute* old = next < old_records->size() ? &(*old_records)[next] : nullptr;
    const bool is_parameter = record.id == 0x17 || record.id == 0x45;
    if (is_parameter && !has_hidden) {
      if (!is_hidden_parameter(record)) return Wrong("the hidden parameter is not described right");
      if (old != nullptr && num_parameters != 0 && old->id != 0x17 && old->id != 0x45)
        return Wrong("the hidden parameter is not the first one described");
      has_hidden = true;
      continue;
    }
    if (record.id == 0x0A) {
      if (record.payload.size() != 8 || Load<uint16_t>(record.payload, 6) != hidden + 16)
        return Wrong("PARAM_CBANK is wrong");
      bank_offset = Load<uint16_t>(record.payload, 4);
      has_bank = true;
    }
    if (record.id == 0x19) {
      if (record.format != 3 || record.value != hidden + 16) return Wrong("CBANK_PARAM_SIZE is wrong");
      has_bank_bytes = true;
    }
    const bool may_grow = (record.id == 0x1C || record.id == 0x28 || record.id == 0x29) && !seen[record.id];
    const auto [words, plus] = words_of(record.id);
    if (old != nullptr && old->id == record.id && old->format == record.format) {
      bool is_right = IsSame(old->whole, record.whole);
      if (record.id == 0x0A)
        is_right = old->payload.size() == 8 && IsSame(old->payload.first(6), record.payload.first(6));
      if (record.id == 0x19) is_right = true;
      if (may_grow)
        is_right = record.payload.size() >= old->payload.size() &&
                   IsSame(old->payload, record.payload.first(old->payload.size())) &&
                   has_words(record.payload, old->payload.size(), words, plus);
      if (!is_right) return Wrong("record 0x{:02x} has changed", record.id);
      ++next;
    } else {
      // Added behind the old ones.
      if (old != nullptr) return Wrong("record 0x{:02x} is in between or missing", record.id);
      bool is_right = false;
      if (may_grow) is_right = has_words(record.payload, 0, words, plus);
      if (record.id == 0x1E)
        is_right = gate_->needs_stack_record && !seen[0x1E] && record.payload.size() == 4 &&
                   Load<uint32_t>(record.payload, 0) == 0;
      if (record.id == 0x04) is_right = gate_->reads_ctaid_z && !seen[4] && record.format == 1 && record.value == 0;
      if (record.id == 0x19) is_right = num_parameters == 0;
      if (record.id == 0x0A) {
        const auto symbol = Load<uint32_t>(record.payload, 0);
        is_right = num_parameters == 0 && bank_offset == gate_->parameter_base && symbol < old_.symbols().size() &&
                   old_.symbols()[symbol].section == parts.constants;
      }
      if (!is_right) return Wrong("record 0x{:02x} was added and should not be", record.id);
    }
    seen[record.id] = true;
  }
  if (next != old_records->size()) return Wrong("a record is missing");
  if (!has_hidden || !has_bank || !has_bank_bytes || !seen[0x1C] || !seen[0x28] || !seen[0x29] ||
      (gate_->needs_stack_record && !seen[0x1E]) || (gate_->reads_ctaid_z && !seen[4]))
    return Wrong("a record that the gate needs is missing");
  parts.hidden_at = bank_offset + hidden;
  return OkStatus();
}

Status Comparison::CheckConstants(const GatedParts& parts) {
  const std::span<const std::byte> a = Old(parts.constants).content, b = New(parts.constants).content;
  if (b.size() != parts.hidden_at + 16) return Wrong("the constant bank does not end with the hidden parameter");
  if (!IsSame(a, b.first(a.size()))) return Wrong("the constant bank has changed");
  const bool is_zero = std::ranges::all_of(b.subspan(a.size()), [](std::byte byte) { return byte == std::byte{0}; });
  return is_zero ? OkStatus() : Wrong("the constant bank's new part is not empty");
}

Status Comparison::CheckCode(const GatedParts& parts) {
  const std::span<const std::byte> a = Old(parts.text).content, b = New(parts.text).content;
  const auto at = [](std::span<const std::byte> code, uint64_t offset) { return Load<Instruction>(code, offset); };
  constexpr uint64_t kWaits = uint64_t{0x3F} << 52, kReuse = uint64_t{0xF} << 58;
  // Where a jump leads: all of its words are known but the distance, in units of 4 bytes.
  const auto target = [&](uint64_t offset) -> int64_t {
    const Instruction jump = at(b, offset);
    const bool is_split = gate_->arch >= 90;
    const uint64_t low_part = is_split ? uint64_t{0xFF} << 16 : 0;
    if ((jump.low & ~low_part & ((uint64_t{1} << 34) - 1)) != gate_->jump.low ||
        (jump.high & ~uint64_t{0x3FFFF}) != gate_->jump.high)
      return -1;
    int64_t words = static_cast<int64_t>(jump.low >> 34 | (jump.high & 0x3FFFF) << 30) << 16 >> 16;
    if (is_split) words = words << 8 | static_cast<int64_t>(jump.low >> 16 & 0xFF);
    return static_cast<int64_t>(offset) + 16 + 4 * words;
  };
  const uint64_t gate = gate_at(parts);
  const uint64_t gate_end = gate + gate_->code.size() * sizeof(Instruction);
  if (b.size() != (gate_end + 127) / 128 * 128) return Wrong("the code has an odd size");
  if (!IsSame(a.subspan(16), b.subspan(16, a.size() - 16))) return Wrong("its own code has changed");
  if (target(0) != static_cast<int64_t>(gate)) return Wrong("its first instruction does not lead to the gate");
  for (uint64_t offset = a.size(); offset < b.size(); offset += 16)
    if ((offset < gate || offset >= gate_end) && at(b, offset) != gate_->nop) return Wrong("the padding is no NOP");
  std::vector<Instruction> expected(gate_->code.begin(), gate_->code.end());
  for (const OffsetPlace& place : gate_->places)
    expected[place.index].low += static_cast<uint64_t>(parts.hidden_at - gate_->parameter_base) << place.shift;
  const Instruction first = at(a, 0);
  for (const uint16_t entry : gate_->entries) {
    expected[entry] = {first.low, (first.high & ~kReuse) | kWaits};
    const uint64_t jump = gate + (entry + uint64_t{1}) * 16;
    if (target(jump) != 16) return Wrong("the gate does not lead to the second instruction");
    expected[entry + uint64_t{1}] = at(b, jump);
  }
  if (!IsSame(std::as_bytes(std::span(expected)), b.subspan(gate, gate_end - gate)))
    return Wrong("the gate is not the one of its architecture");
  return OkStatus();
}

}  // namespace

Status VerifyGated(std::span<const std::byte> original, std::span<const std::byte> gated) {
  const Result<ElfView> old_elf = ElfView::Parse(original), new_elf = ElfView::Parse(gated);
  if (!old_elf) return old_elf.error().With("the original");
  if (!new_elf) return new_elf.error().With("the gated file");
  return Comparison(original, gated, *old_elf, *new_elf).Check();
}

}  // namespace tally::cubin_transforms
