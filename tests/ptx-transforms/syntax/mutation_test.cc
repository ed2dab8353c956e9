// Thousands of damaged PTX texts, the same ones in every run: the parser never crashes or hangs (the sanitizers watch),
// and what it accepts comes back byte for byte. TALLY_MUTATION_RUNS in the environment asks for another number of them.
#include <algorithm>
#include <random>

#include "ptx-transforms/syntax/lexer.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

size_t NumRuns() {
  const char* wanted = std::getenv("TALLY_MUTATION_RUNS");
  return wanted == nullptr ? 10'000 : std::strtoul(wanted, nullptr, 10);
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {ReadText(std::filesystem::path(TALLY_TEST_PTX_GOLDEN) / "syntax/everything.ptx")};
  for (const std::filesystem::path& path : CorpusFiles()) {
    // A window of a few kilobytes behind the head is enough, and fast.
    const std::string text = ReadText(path);
    seeds.push_back(text.substr(0, 6000));
    seeds.push_back(text.substr(0, 300) + text.substr(text.size() / 2, 4000));
  }
  return seeds;
}

void FlipBytes(std::string& text, std::mt19937& random) {
  static constexpr std::string_view kNasty = "{}[]()<>,;:=@!|+-*/%&.\"\\'#$_0f9x\n\0\x80\xff";
  for (size_t i = 1 + random() % 8; i > 0 && !text.empty(); --i)
    text[random() % text.size()] = random() % 2 == 0 ? kNasty[random() % kNasty.size()] : static_cast<char>(random());
}

void ShuffleTokens(std::string& text, std::mt19937& random) {
  std::vector<TextRange> tokens;
  Lexer lexer(text);
  for (Token token = lexer.Next(); token.kind != TokenKind::kEnd; token = lexer.Next()) tokens.push_back(token.range());
  if (tokens.size() < 4) return;
  for (size_t i = 1 + random() % 3; i > 0; --i) {
    const TextRange a = tokens[random() % (tokens.size() / 2)];
    const TextRange b = tokens[tokens.size() / 2 + random() % (tokens.size() / 2)];
    if (b.end > text.size()) continue;
    const std::string first = text.substr(a.begin, a.size());
    const std::string second = text.substr(b.begin, b.size());
    switch (random() % 4) {
      case 0:  // swap
        text.replace(b.begin, b.size(), first);
        text.replace(a.begin, a.size(), second);
        return;
      case 1:  // drop
        text.erase(b.begin, b.size());
        break;
      case 2:  // double
        text.insert(b.begin, second);
        break;
      default:  // copy here
        text.insert(a.begin, second + " ");
        return;
    }
  }
}

void Mutate(std::string& text, std::mt19937& random) {
  switch (random() % 5) {
    case 0:
      text.resize(random() % (text.size() + 1));
      break;
    case 1:
      FlipBytes(text, random);
      break;
    case 2: {  // a piece moves or repeats
      const size_t from = random() % text.size();
      const std::string piece = text.substr(from, random() % 200);
      text.insert(random() % text.size(), piece);
      break;
    }
    default:
      ShuffleTokens(text, random);
      break;
  }
}

TEST(Mutation, NeverCrashesAndAcceptedTextComesBack) {
  const std::vector<std::string> seeds = Seeds();
  std::mt19937 random(20240607);
  size_t num_accepted = 0;
  const size_t num_runs = NumRuns();
  for (size_t run = 0; run < num_runs; ++run) {
    std::string text = seeds[run % seeds.size()];
    Mutate(text, random);
    const size_t end = std::min(text.find('\0'), text.size());
    Result<Module> module = ParseModule(text);
    if (!module) {
      EXPECT_THAT(module.error().message(), testing::StartsWith("ptx:")) << text;
      continue;
    }
    ++num_accepted;
    EXPECT_EQ(PrintModule(*module), text.substr(0, end));
    // Printing afresh must not crash either; the result need not be what the damaged text meant.
    MarkEdited(*module);
    EXPECT_FALSE(PrintModule(*module).empty());
  }
  EXPECT_GT(num_accepted, num_runs / 20);
  EXPECT_LT(num_accepted, num_runs);
}

TEST(Mutation, EveryTruncationOfEverything) {
  const std::string text = ReadText(std::filesystem::path(TALLY_TEST_PTX_GOLDEN) / "syntax/everything.ptx");
  for (size_t size = 0; size < text.size(); ++size) {
    const std::string part = text.substr(0, size);
    const Result<Module> module = ParseModule(part);
    if (!module) continue;
    EXPECT_EQ(PrintModule(*module), part) << size;
  }
}

}  // namespace
}  // namespace tally::ptx_transforms
