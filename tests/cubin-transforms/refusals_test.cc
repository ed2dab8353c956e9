// What is not certain is refused, kernel by kernel, and left as it was. Cubins are made odd here byte by byte.
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cubin-transforms/add_gates.h"
#include "cubin-transforms/gate/gate_template.h"
#include "images/elf_view.h"
#include "tests/cubin-transforms/test_cubins.h"

namespace tally::cubin_transforms {
namespace {

using images::ElfSection;
using images::ElfView;

class Refusals : public testing::Test {
 protected:
  std::vector<std::byte> cubin_ = ReadCubin(90);

  ElfView elf() const { return ElfView::Parse(cubin_).value(); }
  ElfSection Section(std::string_view name) const {
    const ElfView view = elf();
    const auto found = std::ranges::find(view.sections(), name, &ElfSection::name);
    EXPECT_NE(found, view.sections().end()) << name;
    return *found;
  }
  template <typename T>
  void Store(uint64_t at, T value) {
    std::memcpy(&cubin_[at], &value, sizeof(value));
  }
  template <typename T>
  T LoadAt(uint64_t at) const {
    T value;
    std::memcpy(&value, &cubin_[at], sizeof(value));
    return value;
  }
  uint64_t SymbolAt(std::string_view name) const {
    const ElfView view = elf();
    for (size_t i = 0; i < view.symbols().size(); ++i)
      if (view.symbols()[i].name == name && view.symbols()[i].type == STT_FUNC)
        return Section(".symtab").offset + i * sizeof(Elf64_Sym);
    ADD_FAILURE() << name;
    return 0;
  }
  // Where the first record of that kind begins in .nv.info.KERNEL.
  uint64_t RecordAt(const std::string& kernel, uint8_t id) const {
    const ElfSection section = Section(".nv.info." + kernel);
    const auto records = images::ReadNvAttributes(section.content);
    for (const images::NvAttribute& record : *records)
      if (record.id == id) return section.offset + static_cast<uint64_t>(record.whole.data() - section.content.data());
    ADD_FAILURE() << kernel << " has no such record";
    return 0;
  }

  // Plain alone is refused, for that reason, and its sections are untouched.
  void ExpectRefused(const std::string& reason) const {
    const Result<GatedImage> image = AddGates(cubin_);
    ASSERT_TRUE(image) << image.error().ToString();
    EXPECT_EQ(image->num_gated(), image->kernels.size() - 2);
    for (const GatedKernel& kernel : image->kernels) {
      if (kernel.name.starts_with("nccl")) continue;
      EXPECT_EQ(kernel.refusal, kernel.name == "Plain" ? reason : "") << kernel.name;
    }
    const ElfView gated = ElfView::Parse(image->cubin).value();
    for (const char* const name : {".text.Plain", ".nv.info.Plain", ".nv.constant0.Plain"}) {
      const auto found = std::ranges::find(gated.sections(), std::string_view(name), &ElfSection::name);
      ASSERT_NE(found, gated.sections().end());
      EXPECT_TRUE(std::ranges::equal(found->content, Section(name).content)) << name;
    }
  }
};

TEST_F(Refusals, AttributesByName) {
  const uint64_t at = RecordAt("Plain", 0x37) + 1;
  for (const auto& [id, reason] : std::vector<std::pair<uint8_t, std::string>>{
           {0x1D, "lists the instructions that read its block's index (S2RCTAID_INSTR_OFFSETS)"},
           {0x1F, "launches kernels itself (CNP attribute)"},
           {0x4F, "has entry fragments (AT_ENTRY_FRAGMENTS), beside which no gate has been tried"},
           {0x5B, "counts its grid in clusters (BLOCKS_ARE_CLUSTERS)"},
           {0xEE, "has the unknown attribute 0xee"},
           {0x00, "has the unknown attribute 0x00"}}) {
    Store(at, id);
    ExpectRefused(reason);
  }
}

// Those whose numbers are known are no reason if that was asked for.
TEST_F(Refusals, EntryFragments) {
  const uint64_t at = RecordAt("Plain", 0x37);  // of one word
  Store<uint8_t>(at + 1, 0x4F);
  for (const uint32_t fragment : {3u, 4u, 6u, 7u, 8u}) {
    Store(at + 4, fragment);
    ExpectRefused("has entry fragments (AT_ENTRY_FRAGMENTS), beside which no gate has been tried");
    const bool is_known = fragment >= 4 && fragment <= 7;
    EXPECT_EQ(AddGates(cubin_, {.accepts_entry_fragments = true})->num_gated(),
              AddGates(cubin_)->num_gated() + (is_known ? 1 : 0));
  }
}

TEST_F(Refusals, RecordsThatContradictEachOther) {
  Store<uint16_t>(RecordAt("Plain", 0x19) + 2, 20);
  ExpectRefused("PARAM_CBANK and CBANK_PARAM_SIZE contradict each other");
}

TEST_F(Refusals, AParameterRecordOfAnotherFormat) {
  Store<uint8_t>(RecordAt("Plain", 0x37) + 1, 0x17);  // of 4 bytes
  ExpectRefused("a record of a parameter has an odd size");
}

TEST_F(Refusals, AFirstInstructionThatMeansSomethingElseElsewhere) {
  const uint64_t at = Section(".text.Plain").offset;
  const auto low = LoadAt<uint64_t>(at);
  for (const uint64_t odd : {(low & ~uint64_t{0xFFF}) | 0x947,  // a branch
                             (low & ~uint64_t{0xFFF}) | 0x355,  // something unknown
                             low & ~uint64_t{0xF000},           // under a predicate
                             low & ~(uint64_t{0xFF} << 24)}) {  // indexed
    Store(at, odd);
    ExpectRefused("its first instruction cannot be moved");
  }
}

TEST_F(Refusals, ABranchToTheFirstInstruction) {
  // The last branch of the code leads to itself; now to the beginning.
  const ElfSection text = Section(".text.Plain");
  uint64_t at = text.offset + text.size - 16;
  while ((LoadAt<uint64_t>(at) & 0xFFF) != 0x947) at -= 16;
  const int64_t words = -static_cast<int64_t>(at + 16 - text.offset) / 4;
  auto low = LoadAt<uint64_t>(at) & 0x3'FF00'FFFF;
  low |= static_cast<uint64_t>(words & 0xFF) << 16 | static_cast<uint64_t>(words >> 8) << 34;
  Store(at, low);
  ExpectRefused("it branches to its first instruction");
}

TEST_F(Refusals, AnEntryThatIsNotTheBeginning) {
  Store<uint64_t>(SymbolAt("Plain") + offsetof(Elf64_Sym, st_value), 0x80);
  ExpectRefused("it does not begin where its section begins");
}

TEST_F(Refusals, AKernelWithoutRecords) {
  // By another name its section of records is not found.
  const ElfView view = elf();
  const auto found = std::ranges::find(view.sections(), std::string_view(".nv.info.Plain"), &ElfSection::name);
  const auto name_at = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(found->name.data()) - cubin_.data());
  Store<char>(name_at + 9, 'X');
  const GatedImage image = AddGates(cubin_).value();
  const auto plain = std::ranges::find(image.kernels, "Plain", &GatedKernel::name);
  EXPECT_EQ(plain->refusal, "it has no .nv.info or .nv.constant0 of its own");
}

TEST_F(Refusals, TwoKernelsInOneSection) {
  Store(SymbolAt("NoParameters") + offsetof(Elf64_Sym, st_shndx),
        LoadAt<uint16_t>(SymbolAt("Plain") + offsetof(Elf64_Sym, st_shndx)));
  const GatedImage image = AddGates(cubin_).value();
  for (const char* const name : {"Plain", "NoParameters"}) {
    const auto kernel = std::ranges::find(image.kernels, name, &GatedKernel::name);
    EXPECT_EQ(kernel->refusal, "its code shares a section with another kernel's");
  }
}

TEST_F(Refusals, AFirstInstructionThatIsRelocated) {
  // Relocations of a constant bank that begin at 0, as if they were of the code.
  const ElfView view = elf();
  const auto index_of = [&](std::string_view name) {
    const auto found = std::ranges::find(view.sections(), name, &ElfSection::name);
    return static_cast<uint64_t>(found - view.sections().begin());
  };
  Store(view.header().e_shoff + index_of(".rela.nv.constant4") * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_info),
        static_cast<uint32_t>(index_of(".text.Calls")));
  const GatedImage image = AddGates(cubin_).value();
  for (const GatedKernel& kernel : image.kernels) {
    if (kernel.name.starts_with("nccl")) continue;
    EXPECT_EQ(kernel.refusal == "its first instruction is relocated", kernel.name == "Calls") << kernel.name;
  }
}

TEST_F(Refusals, AnAddressThatIsTaken) {
  const ElfView view = elf();
  const auto plain = std::ranges::find(view.symbols(), std::string_view("Plain"), &images::ElfSymbol::name);
  const auto index = static_cast<uint64_t>(plain - view.symbols().begin());
  const uint64_t relocation = Section(".rela.nv.constant4").offset;
  const auto info = LoadAt<uint64_t>(relocation + offsetof(Elf64_Rela, r_info));
  Store<uint64_t>(relocation + offsetof(Elf64_Rela, r_info), ELF64_R_INFO(index, ELF64_R_TYPE(info)));
  for (const int64_t addend : {0, 64}) {  // other code may jump into the middle, too
    Store(relocation + offsetof(Elf64_Rela, r_addend), addend);
    ExpectRefused("its address is taken (launched by the GPU itself?)");
  }
}

TEST_F(Refusals, WhatIsUnknownAboutTheFile) {
  cubin_[EI_ABIVERSION] = std::byte{9};
  const GatedImage image = AddGates(cubin_).value();
  EXPECT_EQ(image.num_gated(), 0u);
  EXPECT_EQ(image.cubin, cubin_);
  EXPECT_EQ(image.kernels.front().refusal, "its format is an unknown one (OS/ABI 0x41, version 9)");
}

TEST_F(Refusals, AnArchitectureWithoutAGate) {
  Store<uint32_t>(offsetof(Elf64_Ehdr, e_flags),
                  (LoadAt<uint32_t>(offsetof(Elf64_Ehdr, e_flags)) & ~0xFFFF00u) | 77 << 8);
  const GatedImage image = AddGates(cubin_).value();
  EXPECT_EQ(image.kernels.front().refusal, "there is no gate for sm_77");
  EXPECT_EQ(image.cubin, cubin_);
}

TEST_F(Refusals, SectionsThatOverlap) {
  // The records of Plain begin inside those of another kernel.
  const ElfView view = elf();
  for (size_t i = 0; i < view.sections().size(); ++i)
    if (view.sections()[i].name == ".nv.info.Plain")
      Store<uint64_t>(view.header().e_shoff + i * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_offset),
                      Section(".nv.info.Prints").offset);
  const GatedImage image = AddGates(cubin_).value();
  EXPECT_EQ(image.num_gated(), 0u);
  EXPECT_EQ(image.cubin, cubin_);
}

// Machine code written by hand has no record of its registers: before sm_90 they stand beside the code, too, and if
// they are as many as the gate needs nothing has to be written.
TEST_F(Refusals, RegistersThatAreNotRecorded) {
  for (const int arch : {80, 90}) {
    cubin_ = ReadCubin(arch);
    const ElfSection section = Section(".nv.info");
    const auto records = images::ReadNvAttributes(section.content);
    for (const images::NvAttribute& record : *records) {
      constexpr uint8_t kSomethingElse = 0x11;  // FRAME_SIZE
      if (record.id == 0x2F)
        Store(section.offset + static_cast<uint64_t>(record.whole.data() - section.content.data()) + 1, kSomethingElse);
    }
    const GatedImage image = AddGates(cubin_).value();
    size_t num_with_few = 0;
    for (const GatedKernel& kernel : image.kernels) {
      if (kernel.name.starts_with("nccl")) continue;
      const bool has_few = Section(".text." + kernel.name).info >> 24 < FindGateTemplate(80)->registers;
      EXPECT_EQ(kernel.refusal, has_few ? "its number of registers is not recorded" : "") << kernel.name;
      num_with_few += has_few ? 1 : 0;
    }
    EXPECT_GT(num_with_few, 0u);
    EXPECT_EQ(image.num_gated() != 0, arch == 80);
  }
}

// 4352 bytes of parameters begin at another place of the bank before sm_90, and nobody's are longer than 32764.
TEST(ParameterSpace, IsNotExceeded) {
  for (const auto& [name, num_gated] : {std::pair("full_80.cubin", 1u), std::pair("full_90.cubin", 2u)}) {
    const std::vector<std::byte> cubin = ReadCubin(name);
    const GatedImage image = AddGates(cubin).value();
    ASSERT_EQ(image.kernels.size(), 3u) << name;
    EXPECT_EQ(image.num_gated(), num_gated) << name;
    for (const GatedKernel& kernel : image.kernels) {
      const bool is_full =
          kernel.parameter_bytes == (num_gated == 1 ? 4340u : 32760u) || kernel.parameter_bytes == 32760;
      EXPECT_EQ(kernel.refusal, is_full ? "its parameters leave no room for another 16 bytes" : "") << kernel.name;
    }
  }
}

}  // namespace
}  // namespace tally::cubin_transforms
