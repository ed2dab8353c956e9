#include "ptx-transforms/syntax/declaration_parser.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

using testing::ElementsAre;

struct Parsed {
  Module module;
  const Variable& variable() const { return LastItem<VariableDeclaration>(module).variables[0]; }
};
Parsed ParseVariable(const std::string& text) { return {MustParse(WithHeader(text))}; }

TEST(Variables, ScalarsAndSpecifiers) {
  const Parsed parsed = ParseVariable(".visible .global .attribute(.managed) .align 16 .v4 .f32 name;");
  const Variable& variable = parsed.variable();
  EXPECT_EQ(variable.linkage, Linkage::kVisible);
  EXPECT_EQ(variable.space, StateSpace::kGlobal);
  EXPECT_EQ(variable.align, 16u);
  EXPECT_EQ(variable.vector_width, 4);
  EXPECT_EQ(variable.type, ScalarType::kF32);
  EXPECT_EQ(variable.name, "name");
  EXPECT_THAT(variable.attributes, ElementsAre(".managed"));
  EXPECT_EQ(variable.SizeBytes(), 16u);
  EXPECT_FALSE(variable.has_initializer);
}

TEST(Variables, NaturalAlignment) {
  EXPECT_EQ(ParseVariable(".global .f64 x;").variable().Alignment(), 8u);
  EXPECT_EQ(ParseVariable(".global .v2 .b16 x;").variable().Alignment(), 4u);
  EXPECT_EQ(ParseVariable(".global .align 32 .b8 x[3];").variable().Alignment(), 32u);
}

TEST(Variables, Arrays) {
  const Parsed matrix = ParseVariable(".const .b16 x[3][2*4];");
  EXPECT_THAT(matrix.variable().dimensions, ElementsAre(3, 8));
  EXPECT_EQ(matrix.variable().SizeBytes(), 48u);
  const Parsed open = ParseVariable(".extern .shared .align 16 .b8 x[];");
  EXPECT_THAT(open.variable().dimensions, ElementsAre(Variable::kUnspecifiedDimension));
  EXPECT_EQ(open.variable().SizeBytes(), 0u);
  const Parsed absurd = ParseVariable(".global .b64 x[4294967296][4294967296];");
  EXPECT_EQ(absurd.variable().SizeBytes(), ~uint64_t{0});
}

TEST(Variables, SeveralInOneDeclaration) {
  const Module module = MustParse(WithHeader(".global .align 4 .u32 a, b[4] = {1, 2}, c = 3;"));
  const List<Variable>& variables = LastItem<VariableDeclaration>(module).variables;
  ASSERT_EQ(variables.size(), 3u);
  EXPECT_EQ(variables[1].align, 4u);
  EXPECT_EQ(variables[1].initializer.elements.size(), 2u);
  EXPECT_EQ(variables[2].initializer.bits, 3u);
  EXPECT_EQ(module.Text(variables[1].range), "b[4] = {1, 2}");
}

TEST(Variables, InitialValues) {
  const Parsed parsed = ParseVariable(
      ".global .u64 x[8] = {-1, 0f3F800000, 0d4000000000000000, 1.5, f, g+8, generic(h), generic(i+4)+4};");
  const List<Initializer>& list = parsed.variable().initializer.elements;
  ASSERT_EQ(list.size(), 8u);
  using Kind = Initializer::Kind;
  EXPECT_EQ(list[0].bits, ~uint64_t{0});
  EXPECT_EQ(list[1].kind, Kind::kFloat32);
  EXPECT_EQ(list[2].bits, 0x4000000000000000u);
  EXPECT_EQ(list[3].kind, Kind::kFloat64);
  EXPECT_EQ(list[4].name, "f");
  EXPECT_EQ(list[5].offset, 8);
  EXPECT_FALSE(list[5].is_generic);
  EXPECT_EQ(list[6].kind, Kind::kSymbol);
  EXPECT_TRUE(list[6].is_generic);
  EXPECT_EQ(list[7].name, "i");
  EXPECT_EQ(list[7].offset, 8);
}

TEST(Variables, MaskedAddressesAndNestedLists) {
  const Parsed masks = ParseVariable(".global .u8 x[2] = {0xff(a), 0xff00(generic(b)+1)};");
  const List<Initializer>& list = masks.variable().initializer.elements;
  EXPECT_EQ(list[0].kind, Initializer::Kind::kMask);
  EXPECT_EQ(list[0].bits, 0xFFu);
  EXPECT_EQ(list[0].name, "a");
  EXPECT_EQ(list[1].bits, 0xFF00u);
  EXPECT_TRUE(list[1].is_generic);
  EXPECT_EQ(list[1].offset, 1);
  const Parsed nested = ParseVariable(".global .u8 x[2][2] = {{1, 2}, {}};");
  EXPECT_EQ(nested.variable().initializer.elements[0].elements[1].bits, 2u);
  EXPECT_TRUE(nested.variable().initializer.elements[1].elements.empty());
}

TEST(Variables, UnknownTypesAreKept) {
  const Parsed parsed = ParseVariable(".global .b1024 x;");
  EXPECT_EQ(parsed.variable().type, ScalarType::kNone);
  EXPECT_EQ(parsed.variable().type_name, "b1024");
}

TEST(Registers, RangesAndNames) {
  const Module module = MustParse(InKernel(".reg .b32 %r<100>, x;\n.reg .v2 .f16 h;"));
  const auto& first = NodeOf<RegisterDeclaration>(module, 0);
  EXPECT_EQ(first.type, ScalarType::kB32);
  ASSERT_EQ(first.names.size(), 2u);
  EXPECT_EQ(first.names[0].name, "%r");
  EXPECT_EQ(first.names[0].count, 100u);
  EXPECT_TRUE(first.names[0].is_range);
  EXPECT_FALSE(first.names[1].is_range);
  EXPECT_EQ(NodeOf<RegisterDeclaration>(module, 1).vector_width, 2);
}

TEST(Functions, Kernels) {
  const Module module =
      MustParse(WithHeader(".visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[48])\n"
                           ".maxntid 256, 2, 1\n.minnctapersm 2\n.reqnctapercluster 2\n.explicitcluster\n"
                           ".pragma \"x\", \"y\";\n{ ret; }"));
  const auto& kernel = LastItem<Function>(module);
  EXPECT_TRUE(kernel.is_entry);
  EXPECT_TRUE(kernel.has_body);
  EXPECT_EQ(kernel.linkage, Linkage::kVisible);
  ASSERT_EQ(kernel.parameters.size(), 2u);
  EXPECT_TRUE(kernel.parameters[0].pointer.is_present);
  EXPECT_EQ(kernel.parameters[0].pointer.space, StateSpace::kGlobal);
  EXPECT_EQ(kernel.parameters[0].pointer.align, 16u);
  EXPECT_EQ(kernel.parameters[0].space, StateSpace::kParam);
  EXPECT_EQ(kernel.parameters[1].SizeBytes(), 48u);
  ASSERT_NE(kernel.FindDirective("maxntid"), nullptr);
  EXPECT_THAT(kernel.FindDirective("maxntid")->values, ElementsAre(256, 2, 1));
  EXPECT_THAT(kernel.FindDirective("pragma")->strings, ElementsAre("x", "y"));
  EXPECT_NE(kernel.FindDirective("explicitcluster"), nullptr);
  EXPECT_EQ(kernel.FindDirective("maxnreg"), nullptr);
  EXPECT_EQ(kernel.body.size(), 1u);
}

TEST(Functions, DeclarationsAndDefinitions) {
  const Module module =
      MustParse(WithHeader(".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
                           ".func (.param .b32 r) f(.param .b32 a);\n.func (.param .b32 r) f(.param .b32 a) { ret; }\n"
                           ".weak .func nothing .noreturn { trap; }\n.alias g, f;"));
  const Function* printf = module.FindFunction("vprintf");
  ASSERT_NE(printf, nullptr);
  EXPECT_FALSE(printf->has_body);
  EXPECT_EQ(printf->returns.size(), 1u);
  EXPECT_EQ(printf->parameters.size(), 2u);
  EXPECT_TRUE(module.FindFunction("f")->has_body);  // the definition, not the declaration before it
  EXPECT_NE(module.FindFunction("nothing")->FindDirective("noreturn"), nullptr);
  EXPECT_EQ(module.FindFunction("absent"), nullptr);
  EXPECT_EQ(LastItem<Alias>(module).target, "f");
}

TEST(Module, HeadOfTheFile) {
  const Module module = MustParse(".version 7.8 .target sm_90a, debug .address_size 32 .file 3 \"a/b.cu\", 1, 2");
  EXPECT_EQ(module.version.major, 7u);
  EXPECT_EQ(module.version.minor, 8u);
  EXPECT_THAT(module.targets, ElementsAre("sm_90a", "debug"));
  EXPECT_EQ(module.address_size, 32u);
  EXPECT_EQ(LastItem<FileDirective>(module).index, 3u);
  EXPECT_EQ(LastItem<FileDirective>(module).path, "a/b.cu");
}

TEST(Module, SurvivesBeingMoved) {
  Module module = MustParse(InKernel("add.s32 %r1, %r2, 3;"));
  const Module moved = std::move(module);
  EXPECT_EQ(NodeOf<Instruction>(moved, 0).opcode, "add");
  EXPECT_EQ(moved.Text(BodyOf(moved)[0].span.text()), "add.s32 %r1, %r2, 3;");
}

TEST(Module, EndsAtANul) {
  const std::string text = InKernel("ret;");
  const Module module = MustParse(text + std::string("\0garbage {", 10));
  EXPECT_EQ(module.source(), text);
}

}  // namespace
}  // namespace tally::ptx_transforms
