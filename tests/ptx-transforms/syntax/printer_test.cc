#include "ptx-transforms/syntax/printer.h"

#include "tests/ptx-transforms/syntax/test_modules.h"

namespace tally::ptx_transforms {
namespace {

using testing::HasSubstr;

Function& Kernel(Module& module) { return *module.FindFunction("kernel"); }

Statement NewInstruction(Module& module, std::string_view opcode, std::initializer_list<std::string_view> modifiers,
                         std::initializer_list<Operand> operands) {
  Instruction instruction;
  instruction.opcode = opcode;
  instruction.modifiers = module.arena().Copy(modifiers);
  instruction.operands = module.arena().Copy(operands);
  Statement statement;
  statement.node = instruction;
  return statement;
}

Operand Integer(uint64_t bits) {
  Operand operand;
  operand.kind = OperandKind::kInteger;
  operand.bits = bits;
  return operand;
}

Operand Register(std::string_view name) {
  Operand operand;
  operand.kind = OperandKind::kRegister;
  operand.name = name;
  return operand;
}

TEST(Printer, EditingOneInstructionLeavesTheRest) {
  Module module = MustParse(InKernel("  add.s32 %r1,%r2,  3; // first\n\tsub.s32  %r1 , %r2,4;/* second */\n  ret;"));
  Statement& statement = Kernel(module).body[0];
  std::get<Instruction>(statement.node).opcode = "mul";
  statement.edited = true;
  EXPECT_EQ(PrintModule(module),
            InKernel("  mul.s32 %r1, %r2, 3; // first\n\tsub.s32  %r1 , %r2,4;/* second */\n  ret;"));
}

TEST(Printer, InsertedStatementsGoOnLinesOfTheirOwn) {
  Module module = MustParse(InKernel("\tadd.s32 %r1, %r2, 3; // first\n\tret;"));
  std::vector<Statement>& body = Kernel(module).body;
  body.insert(body.begin() + 1, NewInstruction(module, "bar", {"sync"}, {Integer(0)}));
  Statement label;
  label.node = Label{module.arena().Keep("$entry")};
  body.insert(body.begin(), std::move(label));
  EXPECT_EQ(PrintModule(module), InKernel("$entry:\n\tadd.s32 %r1, %r2, 3;\n\tbar.sync 0; // first\n\tret;"));
}

TEST(Printer, RemovedStatementsTakeTheirLeadingSpaceAlong) {
  Module module = MustParse(InKernel("\tadd.s32 %r1, %r2, 3;\n\t// about the next\n\tsub.s32 %r1, %r2, 4;\n\tret;"));
  Kernel(module).body.erase(Kernel(module).body.begin() + 1);
  EXPECT_EQ(PrintModule(module), InKernel("\tadd.s32 %r1, %r2, 3;\n\tret;"));
}

TEST(Printer, NewBlocksAndReorderedStatements) {
  Module module = MustParse(InKernel("\tadd.s32 %r1, %r2, 3;\n\tret;"));
  std::vector<Statement>& body = Kernel(module).body;
  Block block;
  block.statements.push_back(std::move(body[0]));
  block.statements.push_back(NewInstruction(module, "exit", {}, {}));
  body[0].node = std::move(block);
  body[0].span = {};
  EXPECT_THAT(PrintModule(module), HasSubstr("{\n\t{\n\tadd.s32 %r1, %r2, 3;\n\t\texit;\n\t}\n\tret;\n}"));
  MustParse(PrintModule(module));
}

TEST(Printer, EditedHeadsKeepTheirBodies) {
  Module module = MustParse(WithHeader(".visible   .entry kernel( .param .u64 a )\n{ ret; /* kept */ }"));
  Function& kernel = Kernel(module);
  Variable added = kernel.parameters[0];
  added.name = "b";
  added.align = 8;
  kernel.parameters = module.arena().Copy({kernel.parameters[0], added});
  FunctionDirective directive;
  directive.name = "maxntid";
  directive.values = module.arena().Copy({uint64_t{64}, uint64_t{1}});
  kernel.directives = module.arena().Copy({directive});
  module.items().back().edited = true;
  EXPECT_EQ(PrintModule(module), WithHeader(".visible .entry kernel(.param .u64 a, .param .align 8 .u64 b)\n"
                                            ".maxntid 64, 1\n{ ret; /* kept */ }"));
}

TEST(Printer, NewItems) {
  Module module = MustParse(std::string(kHeader) + "// end\n");
  Variable variable;
  variable.space = StateSpace::kGlobal;
  variable.linkage = Linkage::kVisible;
  variable.type = ScalarType::kU32;
  variable.type_name = "u32";
  variable.name = "control";
  variable.dimensions = module.arena().Copy({uint64_t{4}});
  Item item;
  item.node = VariableDeclaration{module.arena().Copy({variable})};
  module.items().push_back(std::move(item));
  Function function;
  function.is_entry = true;
  function.has_body = true;
  function.name = "made";
  function.body.push_back(NewInstruction(module, "mov", {"u32"}, {Register("%r1"), Register("%r2")}));
  Item made;
  made.node = std::move(function);
  module.items().push_back(std::move(made));
  const std::string text = PrintModule(module);
  EXPECT_EQ(text, std::string(kHeader.substr(0, kHeader.size() - 1)) +
                      "\n.visible .global .u32 control[4];\n.entry made()\n{\n\tmov.u32 %r1, %r2;\n}\n// end\n");
  MustParse(text);
}

TEST(Printer, FreshTextOfEveryOperand) {
  const Module module = MustParse(InKernel(
      ".reg .v4 .f32 v; op %r1|%p1,!%p2,{%r1,_},[%rd1+-4],[tex,{%f1,2}],[16],sym+8,table[%r1+4],-7,7U,0f3F800000,1.0,"
      "%tid.x,v.y;"));
  EXPECT_EQ(PrintInstruction(NodeOf<Instruction>(module, 1)),
            "op %r1|%p1, !%p2, {%r1, _}, [%rd1+-4], [tex, {%f1, 2}], [16], sym+8, table[%r1+4], -7, 7U, 0f3F800000, "
            "0d3FF0000000000000, %tid.x, v.y;");
}

// Everything written afresh means the same: printing what was printed changes nothing, and nothing turns opaque.
TEST(Printer, FreshTextIsAFixedPoint) {
  for (const std::filesystem::path& path : CorpusFiles()) {
    Module module = MustParse(ReadText(path));
    MarkEdited(module);
    const std::string once = PrintModule(module);
    Module again = MustParse(once);
    MarkEdited(again);
    EXPECT_EQ(PrintModule(again), once) << path;
  }
}

}  // namespace
}  // namespace tally::ptx_transforms
