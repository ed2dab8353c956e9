#include "images/cubin.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "images/byte_reader.h"
#include "images/elf_view.h"
#include "images/fat_container.h"

namespace tally::images {
namespace {

// Records of .nv.info that we read.
enum AttributeId : uint8_t {
  kMaxThreads = 0x05,
  kRequiredThreads = 0x10,
  kParameter = 0x17,
  kParameterBytes = 0x19,
  kRegisterCount = 0x2f,
  kBlocksPerCluster = 0x3d,
  kParameterV2 = 0x45,
};

constexpr uint8_t kSymbolIsKernel = 0x10;
constexpr std::string_view kTextPrefix = ".text.";
constexpr std::string_view kSharedPrefix = ".nv.shared.";
constexpr uint64_t kReservedSharedBytes = 1024;

uint32_t ArchOf(const Elf64_Ehdr& header) {
  // The format of CUDA 13 (OS/ABI 0x41) has the architecture in the second byte, older ones in the first.
  constexpr uint8_t kAbiOfCuda13 = 0x41;
  return header.e_ident[EI_OSABI] == kAbiOfCuda13 ? (header.e_flags >> 8) & 0xFFFF : header.e_flags & 0xFF;
}

bool LoadDimensions(const NvAttribute& attribute, std::array<uint32_t, 3>& dimensions) {
  if (attribute.payload.size() < 12) return false;
  for (size_t i = 0; i < 3; ++i) dimensions[i] = Load<uint32_t>(attribute.payload, 4 * i);
  return true;
}

bool AddParameter(const NvAttribute& attribute, CubinKernel& kernel) {
  if (attribute.payload.size() < 12) return false;
  const auto ordinal = Load<uint16_t>(attribute.payload, 4);
  const auto packed = Load<uint32_t>(attribute.payload, 8);
  if (ordinal >= kernel.parameters.size()) return false;
  CubinParameter& parameter = kernel.parameters[ordinal];
  parameter.offset = Load<uint16_t>(attribute.payload, 6);
  parameter.bytes = attribute.id == kParameter ? packed >> 18 : packed & 0xFFFFFF;
  return true;
}

Status ReadKernelAttributes(std::span<const std::byte> section, CubinKernel& kernel) {
  const Result<std::vector<NvAttribute>> attributes = ReadNvAttributes(section);
  if (!attributes) return attributes.error();
  // One record per parameter, last ordinal first.
  kernel.parameters.resize(
      static_cast<size_t>(std::count_if(attributes->begin(), attributes->end(), [](const NvAttribute& attribute) {
        return attribute.id == kParameter || attribute.id == kParameterV2;
      })));
  for (const NvAttribute& attribute : *attributes) {
    bool is_good = true;
    switch (attribute.id) {
      case kParameter:
      case kParameterV2:
        is_good = AddParameter(attribute, kernel);
        break;
      case kParameterBytes:
        kernel.parameter_bytes = attribute.value;
        break;
      case kMaxThreads:
        is_good = LoadDimensions(attribute, kernel.max_threads);
        break;
      case kRequiredThreads:
        is_good = LoadDimensions(attribute, kernel.required_threads);
        break;
      case kBlocksPerCluster:
        is_good = LoadDimensions(attribute, kernel.cluster);
        break;
      default:
        break;
    }
    if (!is_good) return Status(StatusCode::kDataLoss, "a record is too short or has an ordinal that cannot be");
  }
  return OkStatus();
}

}  // namespace

Result<CubinView> CubinView::Parse(std::span<const std::byte> bytes) {
  const Result<ElfView> elf = ElfView::Parse(bytes);
  if (!elf) return std::unexpected(elf.error());
  const std::vector<ElfSection>& sections = elf->sections();
  const std::vector<ElfSymbol>& symbols = elf->symbols();

  CubinView view;
  view.elf_flags_ = elf->header().e_flags;
  view.arch_ = ArchOf(elf->header());
  view.is_linked_ = elf->header().e_type == ET_EXEC;

  // Kernels are the function symbols marked so; each has a code section of its own, which gives the order.
  std::vector<const ElfSymbol*> kernels;
  for (const ElfSymbol& symbol : symbols) {
    if (symbol.name == "vprintf") view.mentions_printf_ = true;
    if (symbol.type != STT_FUNC || (symbol.other & kSymbolIsKernel) == 0) continue;
    if (symbol.section < sections.size() && sections[symbol.section].name.starts_with(kTextPrefix))
      kernels.push_back(&symbol);
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const ElfSymbol* a, const ElfSymbol* b) { return a->section < b->section; });
  std::unordered_map<std::string_view, CubinKernel*> by_name;
  view.kernels_.reserve(kernels.size());
  for (const ElfSymbol* symbol : kernels) {
    if (by_name.contains(symbol->name)) continue;
    CubinKernel& kernel = view.kernels_.emplace_back();
    kernel.name = symbol->name;
    kernel.code_bytes = sections[symbol->section].size;
    by_name[kernel.name] = &kernel;
  }

  const bool reserves_shared = std::any_of(sections.begin(), sections.end(), [](const ElfSection& section) {
    return section.name.starts_with(".nv.shared.reserved.");
  });
  for (const ElfSection& section : sections) {
    if (section.type == kSectionTypeNvInfo && section.name == kNvInfoSection) {
      // About the whole module: register counts by symbol.
      const Result<std::vector<NvAttribute>> attributes = ReadNvAttributes(section.content);
      if (!attributes) return std::unexpected(attributes.error());
      for (const NvAttribute& attribute : *attributes) {
        if (attribute.id != kRegisterCount || attribute.payload.size() < 8) continue;
        const auto symbol = Load<uint32_t>(attribute.payload, 0);
        if (symbol >= symbols.size()) continue;
        if (const auto found = by_name.find(symbols[symbol].name); found != by_name.end())
          found->second->registers = Load<uint32_t>(attribute.payload, 4);
      }
    } else if (section.type == kSectionTypeNvInfo && section.name.starts_with(kNvInfoSection) &&
               section.name.size() > kNvInfoSection.size() + 1) {
      const auto found = by_name.find(section.name.substr(kNvInfoSection.size() + 1));
      if (found == by_name.end()) continue;  // of a device function
      if (Status status = ReadKernelAttributes(section.content, *found->second); !status.ok())
        return std::unexpected(status.With(section.name));
    } else if (section.name.starts_with(kSharedPrefix)) {
      const auto found = by_name.find(section.name.substr(kSharedPrefix.size()));
      if (found == by_name.end()) continue;
      const uint64_t reserved = reserves_shared ? std::min(section.size, kReservedSharedBytes) : 0;
      found->second->static_shared_bytes =
          static_cast<uint32_t>(std::min<uint64_t>(section.size - reserved, UINT32_MAX));
    }
  }
  return view;
}

const CubinKernel* CubinView::FindKernel(std::string_view name) const {
  for (const CubinKernel& kernel : kernels_)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

bool MentionsPrintf(std::span<const std::byte> bytes) {
  switch (KindOfImage(bytes)) {
    case ImageKind::kPtxText:
      return AsText(bytes).find("vprintf") != std::string_view::npos;
    case ImageKind::kCubin: {
      const Result<ElfView> elf = ElfView::Parse(bytes);
      return elf && std::any_of(elf->symbols().begin(), elf->symbols().end(),
                                [](const ElfSymbol& symbol) { return symbol.name == "vprintf"; });
    }
    case ImageKind::kFatContainer: {
      const Result<std::vector<FatEntry>> entries = ReadFatContainer(bytes);
      return entries && std::any_of(entries->begin(), entries->end(), [](const FatEntry& entry) {
               return entry.compression != Compression::kStored ||
                      KindOfImage(entry.payload) == ImageKind::kFatContainer || MentionsPrintf(entry.payload);
             });
    }
    default:
      return false;
  }
}

}  // namespace tally::images
