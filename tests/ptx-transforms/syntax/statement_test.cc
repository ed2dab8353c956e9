#include "ptx-transforms/syntax/body_parser.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

using testing::ElementsAre;

TEST(Statements, InstructionsKeepTheirModifiers) {
  const Module module = MustParse(InKernel("@!%p1 ld.global.nc.L2::128B.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];\n\tret ;"));
  const auto& load = NodeOf<Instruction>(module, 0);
  EXPECT_EQ(load.guard.predicate, "%p1");
  EXPECT_TRUE(load.guard.is_negated);
  EXPECT_EQ(load.opcode, "ld");
  EXPECT_THAT(load.modifiers, ElementsAre("global", "nc", "L2::128B", "v4", "f32"));
  EXPECT_TRUE(load.HasModifier("nc"));
  EXPECT_FALSE(load.HasModifier("n"));
  EXPECT_FALSE(NodeOf<Instruction>(module, 1).guard.is_present());
  const SourceSpan& span = BodyOf(module)[1].span;
  EXPECT_EQ(span.position, (SourcePosition{6, 2}));
  EXPECT_EQ(module.Text(span.text()), "ret ;");
}

TEST(Statements, ManyModifiersAndUnknownOpcodes) {
  std::string mnemonic = "from_the_future";
  for (int i = 0; i < 100; ++i) mnemonic += ".m" + std::to_string(i);
  const Module module = MustParse(InKernel(mnemonic + " %r1, [%rd1, {1, 2}, 3], {{%r1, %r2}, %r3}, 5, (1);"));
  EXPECT_EQ(NodeOf<Instruction>(module, 0).modifiers.size(), 100u);
  EXPECT_EQ(NodeOf<Instruction>(module, 0).operands.size(), 5u);
}

TEST(Statements, LabelsAndTargets) {
  const Module module =
      MustParse(InKernel("$L1: a:b: $ts: .branchtargets $L1, a, b; c : .calltargets f; brx.idx %r1, $ts;"));
  EXPECT_EQ(NodeOf<Label>(module, 0).name, "$L1");
  EXPECT_EQ(NodeOf<Label>(module, 2).name, "b");
  EXPECT_EQ(NodeOf<TargetList>(module, 3).name, "$ts");
  EXPECT_THAT(NodeOf<TargetList>(module, 3).targets, ElementsAre("$L1", "a", "b"));
  EXPECT_FALSE(NodeOf<TargetList>(module, 3).is_call);
  EXPECT_TRUE(NodeOf<TargetList>(module, 4).is_call);
}

TEST(Statements, Prototypes) {
  const Module module =
      MustParse(InKernel("p0 : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[56]);\n"
                         "p1: .callprototype ()_ (.param .b32 _) .noreturn; p2: .callprototype _ ;"));
  const auto& first = NodeOf<CallPrototype>(module, 0);
  EXPECT_EQ(first.name, "p0");
  EXPECT_EQ(first.returns.size(), 1u);
  ASSERT_EQ(first.parameters.size(), 2u);
  EXPECT_EQ(first.parameters[1].SizeBytes(), 56u);
  EXPECT_TRUE(NodeOf<CallPrototype>(module, 1).is_noreturn);
  EXPECT_TRUE(NodeOf<CallPrototype>(module, 1).returns.empty());
  EXPECT_TRUE(NodeOf<CallPrototype>(module, 2).parameters.empty());
}

TEST(Statements, DebugDirectives) {
  const Module module = MustParse(
      InKernel(".loc 1 12 3\n.loc 2 7 1, function_name $L__info_string0+4, inlined_at 1 20 5\n.pragma \"nounroll\";"));
  EXPECT_EQ(NodeOf<LocDirective>(module, 0).line, 12u);
  const auto& inlined = NodeOf<LocDirective>(module, 1);
  EXPECT_EQ(inlined.function_name, "$L__info_string0");
  EXPECT_EQ(inlined.function_name_offset, 4);
  EXPECT_EQ(inlined.inlined_line, 20u);
  EXPECT_THAT(NodeOf<Pragma>(module, 2).strings, ElementsAre("nounroll"));
}

TEST(Statements, BlocksNest) {
  const Module module = MustParse(InKernel("{ .reg .b32 x; { .param .b64 p0; } ret; }"));
  const auto& block = NodeOf<Block>(module, 0);
  ASSERT_EQ(block.statements.size(), 3u);
  EXPECT_EQ(std::get<Block>(block.statements[1].node).statements.size(), 1u);
  EXPECT_EQ(module.Text(block.close.text()), "}");
}

TEST(Statements, VariablesInBodies) {
  const Module module =
      MustParse(InKernel(".local .align 16 .b8 depot[24]; .shared .f32 a, b; .extern .shared .b8 c[];"));
  EXPECT_EQ(NodeOf<VariableDeclaration>(module, 0).variables[0].space, StateSpace::kLocal);
  EXPECT_EQ(NodeOf<VariableDeclaration>(module, 1).variables.size(), 2u);
  EXPECT_EQ(NodeOf<VariableDeclaration>(module, 2).variables[0].linkage, Linkage::kExtern);
}

TEST(Opaque, SectionsAreNormal) {
  const Module module = MustParse(WithHeader(".section .debug_str\n{\n$L: .b8 95\n.b64 $L+4\n}\n.global .u32 x;"));
  EXPECT_EQ(std::get<Opaque>(module.items()[3].node).reason, "");
  EXPECT_EQ(LastItem<VariableDeclaration>(module).variables[0].name, "x");
}

TEST(Opaque, UnknownStatementsSurviveWithTheirReason) {
  const std::string text =
      InKernel("add.s32 %r1 %r2;\n.new_directive 5, 6;\nsub [%rd1+%rd2];\nmul.lo.s32 %r1, %r2, 3;");
  const Result<Module> module = ParseModule(text);
  ASSERT_TRUE(module) << module.error().ToString();
  EXPECT_EQ(PrintModule(*module), text);
  const std::vector<Statement>& body = BodyOf(*module);
  ASSERT_EQ(body.size(), 4u);
  EXPECT_EQ(std::get<Opaque>(body[0].node).reason, "expected ',' or ';' after an operand, found '%r2'");
  EXPECT_EQ(module->Text(body[1].span.text()), ".new_directive 5, 6;");
  EXPECT_TRUE(std::holds_alternative<Opaque>(body[2].node));
  EXPECT_EQ(std::get<Instruction>(body[3].node).opcode, "mul");
  ASSERT_EQ(module->warnings.size(), 3u);
  EXPECT_EQ(module->warnings[0].ToString(), "ptx:5:13: expected ',' or ';' after an operand, found '%r2'");
  EXPECT_EQ(module->warnings[1].position, (SourcePosition{6, 1}));
}

TEST(Opaque, UnknownItemsSurvive) {
  const std::string text =
      WithHeader(".future 1, 2 { a; { b } }\n.global .samplerref s = { filter_mode = nearest };\n.global .u32 x;");
  const Result<Module> module = ParseModule(text);
  ASSERT_TRUE(module) << module.error().ToString();
  EXPECT_EQ(PrintModule(*module), text);
  ASSERT_EQ(module->items().size(), 6u);
  EXPECT_EQ(module->Text(module->items()[3].span.text()), ".future 1, 2 { a; { b } }");
  EXPECT_EQ(module->warnings.size(), 2u);
}

}  // namespace
}  // namespace tally::ptx_transforms
