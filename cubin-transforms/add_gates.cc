#include "cubin-transforms/add_gates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/file_cache.h"
#include "cubin-transforms/cubin/attributes.h"
#include "cubin-transforms/cubin/kernels.h"
#include "cubin-transforms/cubin/rebuild.h"
#include "cubin-transforms/gate/gate_template.h"
#include "cubin-transforms/gate/machine_code.h"
#include "images/byte_reader.h"
#include "images/elf_view.h"
#include "proto/device/gate_abi.h"

namespace tally::cubin_transforms {
namespace {

using images::ElfSection;
using images::ElfSymbol;
using images::ElfView;
using images::Load;

constexpr uint32_t kHiddenBytes = sizeof(device::GateParameters);
// Of the parameter space. The smaller one is that of cubins before sm_90 whose parameters begin at the usual place:
// with more they begin elsewhere, and the kernel's own instructions would have to know.
constexpr uint32_t kMaxParameterBytes = 32764;
constexpr uint32_t kMaxNearParameterBytes = 4352;
constexpr uint32_t kFirstArchOfOneParameterSpace = 90;
constexpr uint32_t kTextAlignment = 128;
constexpr uint32_t kMaxSegments = 64;  // cubins have about six

uint32_t RegistersInInfo(const ElfSection& text) { return text.info >> 24; }  // before sm_90, beside the symbol

// What holds for all kernels of a cubin, and the changes collected so far.
class Splicer {
 public:
  Splicer(const ElfView& elf, const GateTemplate& gate, const GateOptions& options, uint64_t file_bytes)
      : elf_(elf), gate_(gate), options_(options), bytes_left_(file_bytes) {
    for (size_t i = 0; i < elf.sections().size(); ++i)
      if (elf.sections()[i].name == images::kNvInfoSection) module_records_ = i;
    section_symbols_.resize(elf.sections().size());
    for (size_t i = 0; i < elf.symbols().size(); ++i) {
      const ElfSymbol& symbol = elf.symbols()[i];
      if (symbol.type == STT_SECTION && symbol.section < section_symbols_.size())
        section_symbols_[symbol.section] = static_cast<uint32_t>(i);
    }
    if (module_records_ != 0) {
      const auto content = elf.sections()[module_records_].content;
      new_module_records_.assign(content.begin(), content.end());
      FindRegisterCounts(content);
    }
  }

  // Adds the changes that give the kernel its gate, or says why not.
  std::string AddGate(const KernelParts& parts, GatedKernel& kernel);

  SectionChanges TakeChanges() {
    if (module_records_ != 0) changes_.contents[module_records_] = std::move(new_module_records_);
    return std::move(changes_);
  }

 private:
  void FindRegisterCounts(std::span<const std::byte> content);
  std::string CheckCode(const ElfSection& text) const;
  const ElfView& elf_;
  const GateTemplate& gate_;
  const GateOptions& options_;
  uint64_t bytes_left_ = 0;  // of sections that may be changed: no more than the file has, unless they overlap
  std::vector<uint32_t> section_symbols_;  // by section; 0: it has none
  size_t module_records_ = 0;              // the section .nv.info
  std::vector<std::byte> new_module_records_;
  std::vector<size_t> register_counts_;  // by symbol: where its number of registers stands in .nv.info; 0: nowhere
  SectionChanges changes_;
};

void Splicer::FindRegisterCounts(std::span<const std::byte> content) {
  register_counts_.resize(elf_.symbols().size());
  const auto records = images::ReadNvAttributes(content);
  if (!records) return;
  for (const images::NvAttribute& record : *records) {
    if (record.id != attribute::kRegisters || record.payload.size() != 8) continue;
    const auto symbol = Load<uint32_t>(record.payload, 0);
    if (symbol < register_counts_.size())
      register_counts_[symbol] = static_cast<size_t>(record.payload.data() - content.data()) + 4;
  }
}

std::string Splicer::CheckCode(const ElfSection& text) const {
  if (!CanMove(InstructionAt(text.content, 0))) return "its first instruction cannot be moved";
  for (uint64_t at = 0; at < text.size; at += kInstructionBytes) {
    const auto target = BranchTarget(gate_.arch, InstructionAt(text.content, at), static_cast<int64_t>(at));
    if (target && *target >= 0 && *target < int64_t{kInstructionBytes}) return "it branches to its first instruction";
  }
  return {};
}

std::string Splicer::AddGate(const KernelParts& parts, GatedKernel& kernel) {
  const ElfSection& text = elf_.sections()[parts.text];
  const ElfSection& constants = elf_.sections()[parts.constants];
  const ElfSection& old_records = elf_.sections()[parts.records];
  const uint64_t bytes = text.size + constants.size + old_records.size;
  if (bytes > bytes_left_) return "its sections overlap others";
  bytes_left_ -= bytes;
  const KernelRecords records = ReadKernelRecords(old_records.content, options_);
  kernel.parameter_bytes = records.parameter_bytes;
  kernel.num_parameters = records.num_parameters;
  if (!records.refusal.empty()) return records.refusal;
  if (std::string refusal = CheckCode(text); !refusal.empty()) return refusal;
  const size_t count_at = register_counts_.empty() ? 0 : register_counts_[parts.symbol];
  // Machine code written by hand has it in one place only, where there may be no need to change it.
  if (count_at == 0 && RegistersInInfo(text) < gate_.registers) return "its number of registers is not recorded";

  const uint32_t base = records.has_bank ? records.bank_offset : gate_.parameter_base;
  const uint32_t hidden_offset = device::GateOffset(records.parameter_bytes);
  const bool is_near = gate_.arch < kFirstArchOfOneParameterSpace && base == gate_.parameter_base;
  if (hidden_offset + kHiddenBytes > (is_near ? kMaxNearParameterBytes : kMaxParameterBytes))
    return "its parameters leave no room for another 16 bytes";
  const uint32_t bank_bytes = base + hidden_offset + kHiddenBytes;
  if (constants.size != base + records.parameter_bytes) return "its constant bank does not end with its parameters";
  const uint32_t bank_symbol = records.has_bank ? 0 : section_symbols_[parts.constants];
  if (!records.has_bank && bank_symbol == 0) return "its constant bank has no symbol";

  const uint64_t gate_at = (text.size + kTextAlignment - 1) / kTextAlignment * kTextAlignment;
  Result<std::vector<std::byte>> new_records = AddGateRecords(
      old_records.content, records, gate_, {hidden_offset, static_cast<uint32_t>(gate_at), bank_symbol, base});
  if (!new_records) return new_records.error().message();

  // The code: a jump to the gate in place of the first instruction, the gate behind the rest.
  std::vector<Instruction> code(gate_at / kInstructionBytes, gate_.nop);
  std::memcpy(code.data(), text.content.data(), text.size);
  const std::vector<Instruction> gate = MakeGate(gate_, gate_at, base + hidden_offset, code.front());
  code.front() = JumpTo(gate_, 0, static_cast<int64_t>(gate_at));
  code.insert(code.end(), gate.begin(), gate.end());
  while (code.size() * kInstructionBytes % kTextAlignment != 0) code.push_back(gate_.nop);
  const auto code_bytes = std::as_bytes(std::span(code));

  if (RegistersInInfo(text) != 0 && RegistersInInfo(text) < gate_.registers)
    changes_.infos[parts.text] = (text.info & 0xFFFFFF) | gate_.registers << 24;
  if (count_at != 0) {
    const uint32_t registers = std::max(Load<uint32_t>(new_module_records_, count_at), gate_.registers);
    std::memcpy(&new_module_records_[count_at], &registers, sizeof(registers));
  }
  std::vector<std::byte> bank(constants.content.begin(), constants.content.end());
  bank.resize(bank_bytes);
  changes_.contents[parts.text].assign(code_bytes.begin(), code_bytes.end());
  changes_.contents[parts.records] = std::move(*new_records);
  changes_.contents[parts.constants] = std::move(bank);
  changes_.symbol_sizes[parts.symbol] = code_bytes.size();
  kernel.hidden_offset = hidden_offset;
  return {};
}

// Why none of its kernels can be gated, whatever they are; empty if that need not be so.
std::string RefusalOfImage(const ElfView& elf, const GateTemplate* gate) {
  const Elf64_Ehdr& header = elf.header();
  const uint8_t abi = header.e_ident[EI_OSABI], version = header.e_ident[EI_ABIVERSION];
  if (!(abi == 0x41 && version == 8) && !(abi == 0x33 && version == 7))
    return fmt::format("its format is an unknown one (OS/ABI 0x{:x}, version {})", abi, version);
  if (gate == nullptr) return fmt::format("there is no gate for sm_{}", ArchOf(elf));
  if (header.e_type != ET_EXEC) return "it is relocatable";  // IsRelocatable says what to do
  if (header.e_shnum == 0 || header.e_phnum > kMaxSegments) return "it has too many sections or segments";
  const auto is_table = [](const ElfSection& section) { return section.type == SHT_SYMTAB; };
  if (std::ranges::count_if(elf.sections(), is_table) != 1) return "it does not have exactly one symbol table";
  return {};
}

}  // namespace

size_t GatedImage::num_gated() const {
  return static_cast<size_t>(std::ranges::count_if(kernels, &GatedKernel::is_gated));
}

Result<GatedImage> AddGates(std::span<const std::byte> cubin, const GateOptions& options) {
  const Result<ElfView> elf = ElfView::Parse(cubin);
  if (!elf) return std::unexpected(elf.error());
  const GateTemplate* const gate = FindGateTemplate(ArchOf(*elf));
  const std::string image_refusal = RefusalOfImage(*elf, gate);
  const std::vector<KernelParts> all_parts = FindKernels(*elf);
  GatedImage image;
  for (const KernelParts& parts : all_parts)
    image.kernels.push_back(
        {.name = std::string(parts.name), .refusal = image_refusal.empty() ? parts.refusal : image_refusal});
  const auto leave_alone = [&](const std::string& why) {
    for (GatedKernel& kernel : image.kernels)
      if (kernel.is_gated()) kernel.refusal = why;
    image.cubin.assign(cubin.begin(), cubin.end());
    return std::move(image);
  };
  if (image.num_gated() == 0) return leave_alone({});
  Splicer splicer(*elf, *gate, options, cubin.size());
  for (size_t i = 0; i < all_parts.size(); ++i)
    if (image.kernels[i].is_gated()) image.kernels[i].refusal = splicer.AddGate(all_parts[i], image.kernels[i]);
  if (image.num_gated() == 0) return leave_alone({});
  Result<std::vector<std::byte>> rebuilt = Rebuild(cubin, *elf, splicer.TakeChanges());
  if (!rebuilt) return leave_alone("its file: " + rebuilt.error().message());
  if (const Status status = VerifyGated(cubin, *rebuilt); !status.ok())
    return leave_alone("the gated file would not be right: " + status.message());
  image.cubin = std::move(*rebuilt);
  return image;
}

bool IsRelocatable(std::span<const std::byte> cubin) {
  // Few are: the others are not read twice for it.
  if (cubin.size() < sizeof(Elf64_Ehdr) || Load<Elf64_Ehdr>(cubin, 0).e_type != ET_REL) return false;
  return ElfView::Parse(cubin).has_value();
}

std::string GatesVersion(uint32_t arch) {
  // Raise it when the code around the template changes what comes out.
  constexpr uint32_t kVersion = 2;
  const GateTemplate* gate = FindGateTemplate(arch);
  if (gate == nullptr) return fmt::format("{}", kVersion);
  const FileCache::Key code = FileCache::KeyOf({std::as_bytes(gate->code), std::as_bytes(gate->entries)});
  return fmt::format("{}.{:016x}", kVersion, code.digest[0]);
}

}  // namespace tally::cubin_transforms
