// What a fuzzer feeds with text: parser, printer and passes. A broken promise ends the process, which the fuzzer sees.
//
//   ptx-fuzz FILE...     reads each file (how CTest replays the corpus)
//   ptx-fuzz             under afl-fuzz: many texts in one process (tools/fuzz builds and starts that)
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "ptx-transforms/ptx_module.h"
#include "ptx-transforms/transform.h"

#ifdef TALLY_FUZZ_WITH_AFL
#include "tests/ptx-transforms/fuzz/afl_target.h"
#endif

namespace tally::ptx_transforms {
namespace {

constexpr size_t kMaxTextBytes = 1 << 20;

void MarkEdited(std::vector<Statement>& statements) {
  for (Statement& statement : statements) {
    statement.edited = true;
    if (auto* block = std::get_if<Block>(&statement.node)) MarkEdited(block->statements);
  }
}

void CheckSyntax(const std::string& text) {
  Result<Module> module = ParseModule(text);
  if (!module) {
    CHECK(module.error().message().starts_with("ptx:"));
    return;
  }
  CHECK(PrintModule(*module) == text.substr(0, text.find('\0')));
  for (Item& item : module->items()) {
    item.edited = true;
    if (auto* function = std::get_if<Function>(&item.node)) MarkEdited(function->body);
  }
  CHECK(!PrintModule(*module).empty() || module->items().empty());
}

// What the passes make of it parses, and is not out of proportion.
void CheckPasses(const std::string& text) {
  const bool is_understood = ParseModule(text, {.keep_unknown = false}).has_value();
  TransformOptions options;
  options.pipelines = {{"slice_grid"}, {"persistent_blocks", "yield_check"}, {"gate_entry"}};
  for (const Placement placement : {Placement::kAdd, Placement::kOnly}) {
    options.placement = placement;
    // As the executor asks for it.
    if (placement == Placement::kOnly)
      for (std::vector<std::string>& passes : options.pipelines) passes.emplace_back("import_globals");
    const Result<Transformed> transformed = TransformText(text, options);
    if (!transformed) continue;
    for (const KernelVariant& variant : transformed->variants) CHECK(variant.refusal.code != "verifier");
    CHECK(transformed->text.size() <= 20 * text.size() + 20'000 * transformed->variants.size() + 20'000);
    // Text that was only kept, not understood, may read differently where its neighbours are gone.
    if (is_understood) CHECK(ParseModule(transformed->text).has_value());
  }
}

}  // namespace

void CheckText(const std::string& text) {
  if (text.size() > kMaxTextBytes) return;
  CheckSyntax(text);
  CheckPasses(text);
}

}  // namespace tally::ptx_transforms

int main(int argc, char** argv) {
  using tally::ptx_transforms::CheckText;
#ifdef TALLY_FUZZ_WITH_AFL
  if (argc == 1) {
    while (tally::fuzz::NextInput(20000)) CheckText(std::string(tally::fuzz::Input()));
    return 0;
  }
#endif
  for (int k = 1; k < argc; ++k) {
    std::ifstream file(argv[k], std::ios::binary);
    CHECK(file.good());
    CheckText({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  }
  return 0;
}
