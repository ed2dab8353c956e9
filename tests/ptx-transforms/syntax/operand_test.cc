#include "ptx-transforms/syntax/operand_parser.h"
#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

// The operands of one instruction that stands behind some declarations.
class Operands : public testing::Test {
 protected:
  const List<Operand>& Parse(const std::string& instruction) {
    module_ = std::make_unique<Module>(
        MustParse(InKernel(".reg .pred %p<4>; .reg .b32 plain, ranged<12>; .reg .v4 .f32 v; " + instruction)));
    return std::get<Instruction>(BodyOf(*module_).back().node).operands;
  }
  const Operand& ParseOne(const std::string& operand) { return Parse("op " + operand + ";")[0]; }

  std::unique_ptr<Module> module_;
};

TEST_F(Operands, Registers) {
  for (const char* name : {"%r1", "%p2", "plain", "ranged0", "ranged11", "%not_declared"}) {
    EXPECT_EQ(ParseOne(name).kind, OperandKind::kRegister) << name;
    EXPECT_EQ(ParseOne(name).name, name);
  }
  EXPECT_EQ(ParseOne("v.z").component, 'z');
  EXPECT_EQ(ParseOne("v.a").component, 'w');
  EXPECT_TRUE(ParseOne("!%p1").negated);
  EXPECT_EQ(ParseOne("_").kind, OperandKind::kSink);
}

TEST_F(Operands, SpecialRegisters) {
  EXPECT_EQ(ParseOne("%tid.y").kind, OperandKind::kSpecialRegister);
  EXPECT_EQ(ParseOne("%tid.y").name, "%tid");
  EXPECT_EQ(ParseOne("%tid.y").component, 'y');
  for (const char* name : {"%laneid", "%clock64", "%globaltimer_lo", "%envreg31", "%pm7", "%pm3_64", "%clock_hi",
                           "%cluster_ctarank", "%dynamic_smem_size", "%reserved_smem_offset_cap"})
    EXPECT_EQ(ParseOne(name).kind, OperandKind::kSpecialRegister) << name;
  for (const char* name : {"%tidy", "%pm", "%envreg", "%r", "%fd12", "%clock65"})
    EXPECT_EQ(ParseOne(name).kind, OperandKind::kRegister) << name;
}

TEST_F(Operands, Symbols) {
  EXPECT_EQ(ParseOne("somewhere").kind, OperandKind::kSymbol);
  EXPECT_EQ(ParseOne("somewhere+8-4").offset, 4);
  EXPECT_EQ(ParseOne("$L__BB0_1").kind, OperandKind::kSymbol);
  EXPECT_EQ(ParseOne("rangedX").kind, OperandKind::kSymbol);
  const Operand& subscript = ParseOne("table[%r1+4]");
  EXPECT_EQ(subscript.kind, OperandKind::kSubscript);
  EXPECT_EQ(subscript.name, "table");
  EXPECT_EQ(subscript.parts[0].name, "%r1");
  EXPECT_EQ(subscript.parts[0].offset, 4);
}

TEST_F(Operands, Immediates) {
  EXPECT_EQ(ParseOne("-1").bits, ~uint64_t{0});
  EXPECT_EQ(ParseOne("0x10U").bits, 16u);
  EXPECT_TRUE(ParseOne("0x10U").is_unsigned);
  EXPECT_EQ(ParseOne("0f3F800000").kind, OperandKind::kFloat32);
  EXPECT_EQ(ParseOne("0f3F800000").bits, 0x3F800000u);
  EXPECT_EQ(ParseOne("-0d3FF0000000000000").kind, OperandKind::kFloat64);
  EXPECT_EQ(ParseOne("-0d3FF0000000000000").bits, 0xBFF0000000000000u);
  EXPECT_EQ(ParseOne("(2 + 3) * 4").bits, 20u);
  EXPECT_EQ(ParseOne("WARP_SZ").bits, 32u);
  EXPECT_EQ(ParseOne("!0").bits, 1u);
}

TEST_F(Operands, Memory) {
  const Operand& by_register = ParseOne("[%rd1+-16]");
  EXPECT_EQ(by_register.kind, OperandKind::kMemory);
  EXPECT_EQ(by_register.base_kind, OperandKind::kRegister);
  EXPECT_EQ(by_register.name, "%rd1");
  EXPECT_EQ(by_register.offset, -16);
  EXPECT_EQ(ParseOne("[plain]").base_kind, OperandKind::kRegister);
  const Operand& by_symbol = ParseOne("[retval0+4+4]");
  EXPECT_EQ(by_symbol.base_kind, OperandKind::kSymbol);
  EXPECT_EQ(by_symbol.offset, 8);
  const Operand& by_address = ParseOne("[0x1000 + 8]");
  EXPECT_EQ(by_address.base_kind, OperandKind::kInteger);
  EXPECT_EQ(by_address.bits, 0x1008u);
  const Operand& tensor = ParseOne("[%rd1, {%r2, 3}, %r4]");
  ASSERT_EQ(tensor.parts.size(), 2u);
  EXPECT_EQ(tensor.parts[0].kind, OperandKind::kVector);
  EXPECT_EQ(tensor.parts[0].parts[1].bits, 3u);
  EXPECT_EQ(tensor.parts[1].name, "%r4");
}

TEST_F(Operands, VectorsAndPairs) {
  const List<Operand>& vector = Parse("mov.b64 {%r1, _}, %rd2;");
  ASSERT_EQ(vector.size(), 2u);
  ASSERT_EQ(vector[0].parts.size(), 2u);
  EXPECT_EQ(vector[0].parts[1].kind, OperandKind::kSink);
  const List<Operand>& pair = Parse("shfl.sync.bfly.b32 %r1|%p2, %r3, 16, 31, -1;");
  ASSERT_EQ(pair.size(), 5u);
  EXPECT_EQ(pair[0].kind, OperandKind::kPair);
  EXPECT_EQ(pair[0].parts[0].name, "%r1");
  EXPECT_EQ(pair[0].parts[1].name, "%p2");
}

TEST_F(Operands, Calls) {
  const List<Operand>& direct = Parse("call.uni (retval0), vprintf, (param0, param1);");
  ASSERT_EQ(direct.size(), 3u);
  EXPECT_EQ(direct[0].kind, OperandKind::kGroup);
  EXPECT_EQ(direct[0].parts[0].name, "retval0");
  EXPECT_EQ(direct[1].kind, OperandKind::kSymbol);
  EXPECT_EQ(direct[2].parts.size(), 2u);
  const List<Operand>& indirect = Parse("call (retval0), %rd1, (), prototype_0;");
  ASSERT_EQ(indirect.size(), 4u);
  EXPECT_EQ(indirect[1].kind, OperandKind::kRegister);
  EXPECT_TRUE(indirect[2].parts.empty());
  EXPECT_EQ(indirect[3].name, "prototype_0");
  EXPECT_EQ(Parse("call nothing;").size(), 1u);
  EXPECT_EQ(Parse("ret;").size(), 0u);
}

TEST_F(Operands, KnowWhereTheyStand) {
  const Operand& memory = Parse("ld.global.b32 %r1, [ %rd1 + 4 ];")[1];
  EXPECT_EQ(module_->Text(memory.range), "[ %rd1 + 4 ]");
  EXPECT_EQ(module_->PositionAt(memory.range.begin).line, 5u);
  const Operand& vector = ParseOne("{ %r1 , 7 }");
  EXPECT_EQ(module_->Text(vector.parts[1].range), "7");
  const Operand& pair = ParseOne("%r1 | %p1");
  EXPECT_EQ(module_->Text(pair.range), "%r1 | %p1");
}

TEST(RegisterNames, FollowScopes) {
  const Module module = MustParse(InKernel("{ .reg .b32 a; op a; } op a; { .reg .b32 a<2>; { op a1; } } op a1;"));
  const auto kind = [](const Statement& statement) { return std::get<Instruction>(statement.node).operands[0].kind; };
  const std::vector<Statement>& body = BodyOf(module);
  EXPECT_EQ(kind(std::get<Block>(body[0].node).statements[1]), OperandKind::kRegister);
  EXPECT_EQ(kind(body[1]), OperandKind::kSymbol);
  const Block& inner = std::get<Block>(std::get<Block>(body[2].node).statements[1].node);
  EXPECT_EQ(kind(inner.statements[0]), OperandKind::kRegister);
  EXPECT_EQ(kind(body[3]), OperandKind::kSymbol);
}

TEST(RegisterNames, VariablesMayBeginWithPercent) {
  const Module module = MustParse(InKernel(".param .b32 %out; op %out, %r1;"));
  EXPECT_EQ(NodeOf<Instruction>(module, 1).operands[0].kind, OperandKind::kSymbol);
  EXPECT_EQ(NodeOf<Instruction>(module, 1).operands[1].kind, OperandKind::kRegister);
}

}  // namespace
}  // namespace tally::ptx_transforms
