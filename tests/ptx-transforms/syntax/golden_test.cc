// golden/syntax/NAME.ptx comes back byte for byte; written afresh it is NAME.fresh.ptx. With TALLY_UPDATE_GOLDEN=1 in
// the environment the latter is rewritten instead: read the difference before you commit it.
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

TEST(Golden, EveryShapeOfTheLanguage) {
  const std::filesystem::path folder = std::filesystem::path(TALLY_TEST_PTX_GOLDEN) / "syntax";
  const std::string text = ReadText(folder / "everything.ptx");
  Result<Module> module = ParseModule(text);
  ASSERT_TRUE(module) << module.error().ToString();
  EXPECT_EQ(PrintModule(*module), text);
  // Two things in it are meant not to be understood.
  std::string warnings;
  for (const Diagnostic& warning : module->warnings) warnings += warning.ToString() + "\n";
  EXPECT_EQ(warnings,
            "ptx:31:45: expected '}' after the initial values, found '='\n"
            "ptx:42:1: expected a directive of module scope, found '.some_future_directive'\n");

  MarkEdited(*module);
  const std::string fresh = PrintModule(*module);
  const std::filesystem::path expected = folder / "everything.fresh.ptx";
  if (std::getenv("TALLY_UPDATE_GOLDEN") != nullptr) std::ofstream(expected) << fresh;
  EXPECT_EQ(fresh, ReadText(expected));
}

}  // namespace
}  // namespace tally::ptx_transforms
