// What nvcc makes comes back byte for byte, is understood in full, and is still good PTX when written afresh.
#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

class Corpus : public testing::TestWithParam<std::filesystem::path> {};

size_t CountOpaque(const std::vector<Statement>& statements) {
  size_t count = 0;
  for (const Statement& statement : statements) {
    count += std::holds_alternative<Opaque>(statement.node) ? 1 : 0;
    if (const auto* block = std::get_if<Block>(&statement.node)) count += CountOpaque(block->statements);
  }
  return count;
}

TEST_P(Corpus, ComesBackByteForByteAndUnderstood) {
  const std::string text = ReadText(GetParam());
  ASSERT_GT(text.size(), 1000u);
  const Module module = MustParse(text);  // compares the print
  size_t num_kernels = 0;
  for (const Item& item : module.items()) {
    const auto* function = std::get_if<Function>(&item.node);
    if (function == nullptr) continue;
    num_kernels += function->is_entry ? 1 : 0;
    EXPECT_EQ(CountOpaque(function->body), 0u) << function->name;
  }
  EXPECT_GT(num_kernels, 0u);
}

// Leading space and text of all nodes follow one another without a gap.
TEST_P(Corpus, SpansTileTheSource) {
  const Module module = MustParse(ReadText(GetParam()));
  uint32_t at = 0;
  const auto check = [&](const SourceSpan& span) {
    EXPECT_EQ(span.leading, at);
    EXPECT_LE(span.leading, span.begin);
    EXPECT_LT(span.begin, span.end);
    EXPECT_EQ(span.position, module.PositionAt(span.begin));
    at = span.end;
  };
  const std::function<void(const std::vector<Statement>&)> check_all = [&](const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) {
      check(statement.span);
      if (const auto* block = std::get_if<Block>(&statement.node)) {
        check_all(block->statements);
        check(block->close);
      }
    }
  };
  for (const Item& item : module.items()) {
    check(item.span);
    const auto* function = std::get_if<Function>(&item.node);
    if (function == nullptr || !function->has_body) continue;
    check(function->open);
    check_all(function->body);
    check(function->close);
  }
  EXPECT_EQ(module.trailing.begin, at);
  EXPECT_EQ(module.trailing.end, module.source().size());
}

// Code and constants of a cubin. Its symbols are left out: those of local labels hold line numbers of the text.
std::string ProgramOf(const std::string& cubin) {
  Elf64_Ehdr header;
  std::memcpy(&header, cubin.data(), sizeof(header));
  std::string program;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, cubin.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type == SHT_PROGBITS) program += cubin.substr(section.sh_offset, section.sh_size);
  }
  return program;
}

// The assembler makes the same machine code of the original and of the text written afresh.
TEST_P(Corpus, AssemblesToTheSameCodeWhenWrittenAfresh) {
  if (access(TALLY_TEST_PTXAS, X_OK) != 0) GTEST_SKIP() << "SKIPPED: no " TALLY_TEST_PTXAS;
  Module module = MustParse(ReadText(GetParam()));
  MarkEdited(module);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tally_ptx_corpus_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  // The same file names both times, because the assembler notes its command line in what it makes.
  const std::string base = (folder / "module").string();
  const std::string command = std::string(TALLY_TEST_PTXAS) + " -c " + (module.targets.size() > 1 ? "-O0" : "-O1") +
                              " -arch=" + std::string(module.targets[0]) + " " + base + ".ptx -o " + base + ".cubin";
  const auto assemble = [&](std::string_view text) {
    std::ofstream(base + ".ptx") << text;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return ProgramOf(ReadText(base + ".cubin"));
  };
  const std::string original = assemble(module.source());
  EXPECT_GT(original.size(), 500u);
  const std::string fresh = assemble(PrintModule(module));
  // Line tables name the lines of the text, which are other ones now: there it is enough to be accepted.
  const bool has_lines = module.source().find(".loc\t") != std::string_view::npos;
  EXPECT_TRUE(has_lines || original == fresh);  // no EXPECT_EQ: it would print them
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Nvcc, Corpus, testing::ValuesIn(CorpusFiles()),
                         [](const auto& param_info) { return param_info.param.stem().string(); });

TEST(Corpus, IsThere) { EXPECT_EQ(CorpusFiles().size(), 10u); }

}  // namespace
}  // namespace tally::ptx_transforms
