// Compiling and linking.
#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

Status CompileError(const std::string& text) {
  std::string_view view = text;
  auto program = CompileProgram({&view, 1});
  return program ? OkStatus() : program.error();
}

TEST(ProgramTest, DescribesKernelsAndVariables) {
  Launcher launcher;
  auto program = launcher.Load({PtxHeader() + R"(
.global .align 8 .u64 table[3] = {f, generic(c)+4, 7};
.visible .const .align 4 .b32 c[2] = {1, 2};
.global .attribute(.managed) .align 4 .f32 m = 0f3F800000;
.func f() { ret; }
.visible .entry k(.param .u8 a, .param .align 16 .b8 b[20], .param .f64 d) .maxntid 8,4,2 { .shared .align 8 .b8 s[24]; .local .b8 l[40]; .reg .b64 %rd<3>; mov.u64 %rd1,s; mov.u64 %rd2,l; ret; }
.visible .entry r() .reqntid 32 { ret; })"});
  ASSERT_TRUE(program);
  const Kernel& k = program->kernels()[*program->FindKernel("k")];
  ASSERT_EQ(k.parameters.size(), 3u);
  EXPECT_EQ(k.parameters[1].offset_bytes, 16u);
  EXPECT_EQ(k.parameters[2].offset_bytes, 40u);
  EXPECT_EQ(k.parameter_bytes, 48u);
  EXPECT_EQ(k.static_shared_bytes, 24u);
  EXPECT_GE(k.local_bytes_per_thread, 40u);
  EXPECT_EQ(k.max_threads_per_block, 64u);
  EXPECT_EQ(program->kernels()[*program->FindKernel("r")].required_block[0], 32u);
  uint32_t table = *program->FindVariable("table");
  uint32_t c = *program->FindVariable("c");
  EXPECT_EQ(program->variables()[c].space, VariableSpace::kConstant);
  EXPECT_TRUE(program->variables()[c].is_visible);
  EXPECT_TRUE(program->variables()[*program->FindVariable("m")].is_managed);
  auto values = launcher.Download<uint64_t>(launcher.variables()[table], 3);
  EXPECT_NE(values[0], 0u);
  EXPECT_EQ(values[1], launcher.variables()[c] + 4);
  EXPECT_EQ(values[2], 7u);
  EXPECT_FALSE(program->FindKernel("f"));
}

// A compiler gives a thread no more registers than so many threads may have, and spills instead.
TEST(ProgramTest, RegistersLeaveRoomForTheThreadsThatAKernelDeclares) {
  Launcher launcher;
  const std::string body = "{ .reg .b32 %r<1000>; .reg .u64 %rd<2>; ld.param.u64 %rd1,[p]; " + [] {
    std::string text;
    for (int i = 1; i < 1000; ++i) text += "ld.global.u32 %r" + std::to_string(i) + ",[%rd1]; ";
    for (int i = 2; i < 1000; ++i) text += "add.u32 %r1,%r1,%r" + std::to_string(i) + "; ";
    return text + "st.global.u32 [%rd1],%r1; ";
  }() + "ret; }\n";
  auto program = launcher.Load({PtxHeader() + ".visible .entry any(.param .u64 p) " + body +
                                ".visible .entry bounded(.param .u64 p) .maxntid 384 " + body +
                                ".visible .entry whole(.param .u64 p) .maxntid 1024 " + body});
  ASSERT_TRUE(program);
  const auto registers = [&](const char* name) { return program->kernels()[*program->FindKernel(name)].num_registers; };
  EXPECT_EQ(registers("any"), 255u);
  EXPECT_EQ(registers("bounded"), 168u);
  EXPECT_EQ(registers("whole"), 64u);
}

TEST(ProgramTest, LinksTexts) {
  Launcher launcher;
  std::string first =
      PtxHeader() +
      R"(.extern .func (.param .b32 r) twice(.param .b32 a); .extern .global .u32 shared_name; .global .u32 own = 5;
.visible .entry k(.param .u64 p){ .reg .b64 %rd<3>; .reg .b32 %r<5>; ld.param.u64 %rd1,[p]; ld.global.u32 %r1,[shared_name]; ld.global.u32 %r2,[own]; add.u32 %r1,%r1,%r2;
{ .param .b32 a; .param .b32 r; st.param.b32 [a],%r1; call (r), twice, (a); ld.param.b32 %r3,[r]; } st.global.u32 [%rd1],%r3; ret; })";
  std::string second = PtxHeader() + R"(.visible .global .u32 shared_name = 10; .global .u32 own = 7;
.visible .func (.param .b32 r) twice(.param .b32 a){ .reg .b32 %r<5>; ld.param.b32 %r1,[a]; ld.global.u32 %r2,[own]; mad.lo.u32 %r1,%r1,2,%r2; st.param.b32 [r],%r1; ret; })";
  auto program = launcher.Load({first, second});
  ASSERT_TRUE(program);
  uint64_t out = launcher.Upload(std::vector<uint32_t>(4));
  auto fault = launcher.Run(launcher.Request(program, "k", {1}, {1}, out));
  ASSERT_FALSE(fault) << fault->message;
  EXPECT_EQ(launcher.Download<uint32_t>(out, 1)[0], 37u);
}

TEST(ProgramTest, WeakDefinitionsMergeAndStrongOnesClash) {
  std::string weak = PtxHeader() + ".weak .func f() { ret; }\n";
  std::string strong = PtxHeader() + ".visible .func f() { ret; }\n";
  std::string_view merge[] = {weak, strong, weak};
  EXPECT_TRUE(CompileProgram(merge));
  std::string_view clash[] = {strong, strong};
  EXPECT_FALSE(CompileProgram(clash));
}

TEST(ProgramTest, SharedVariablesOfDifferentKernelsOverlap) {
  Launcher launcher;
  auto program = launcher.Load(
      {PtxHeader() + R"(.shared .align 4 .b8 a[30000]; .shared .align 4 .b8 b[30000]; .shared .align 4 .b8 both[8];
.visible .entry ka(){ .reg .b32 %r<3>; mov.u32 %r1,a; mov.u32 %r2,both; ret; } .visible .entry kb(){ .reg .b32 %r<3>; mov.u32 %r1,b; mov.u32 %r2,both; ret; })"});
  ASSERT_TRUE(program);
  for (const Kernel& kernel : program->kernels()) EXPECT_LE(kernel.static_shared_bytes, 30016u) << kernel.name;
}

TEST(ProgramTest, RefusesWhatMakesNoSense) {
  auto in_kernel = [](const std::string& body) {
    return PtxHeader() +
           ".visible .entry k(.param .u64 p){.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<3>; .reg .f32 %f<3>;\n" +
           body + "\nret;}";
  };
  EXPECT_TRUE(CompileError(in_kernel("add.u32 %r1,%r2,%r3;")).ok());
  for (const char* body : {"add.u32 %r1,%r2,%r9;", "add.u32 %r1,%r2,%rd1;", "add.u32 %r1,%r2;", "bra NOWHERE;",
                           "add.u64 %r1,%rd1,%rd2;", "ld.param.u64 %rd1,[p+4];", "ld.param.u64 %rd1,[p+-8];",
                           "ld.global.u32 %r1,[nothing];", "call nothing;", "@%r1 add.u32 %r1,%r2,%r3;", "A: A: ret;",
                           "mov.u64 %rd1,nothing;", "st.param.u32 [p],%r1;", "ld.global.u64 %r1,[%rd1];"}) {
    Status status = CompileError(in_kernel(body));
    EXPECT_FALSE(status.ok()) << body;
    EXPECT_NE(status.message().find("ptx:5"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(CompileError("not ptx at all").ok());
}

TEST(ProgramTest, LoadsOfParametersEndWithThem) {
  const auto error_of = [](const std::string& body) {
    return CompileError(
        PtxHeader() + R"(.func f(.param .align 8 .b8 s[16]){.reg .b16 %h<2>; .reg .b64 %rd<2>;)" +
        (body.starts_with("f:") ? body.substr(2) : "") + "ret;}\n" +
        ".visible .entry k(.param .u64 p, .param .align 2 .b8 q[6]){.reg .b16 %h<2>; .reg .b64 %rd<2>;" +
        (body.starts_with("k:") ? body.substr(2) : "") + "ret;}");
  };
  for (const char* body : {"k:ld.param.u64 %rd1,[p];", "k:ld.param.u16 %h1,[q+4];", "k:ld.param.u8 %h1,[q+5];",
                           "f:ld.param.u64 %rd1,[s+8];", "f:ld.param.u8 %h1,[s+15];"})
    EXPECT_TRUE(error_of(body).ok()) << body << error_of(body).message();
  for (const char* body : {"k:ld.param.u64 %rd1,[p+8];", "k:ld.param.u16 %h1,[q+6];", "k:ld.param.u8 %h1,[q+6];",
                           "k:ld.param.u16 %h1,[q+5];", "f:ld.param.u64 %rd1,[s+16];", "f:ld.param.u8 %h1,[s+16];",
                           "f:ld.param.u64 %rd1,[s+12];", "f:st.param.u64 [s+16],%rd1;", "f:st.param.u64 [s+9],%rd1;"})
    EXPECT_NE(error_of(body).message().find("outside the"), std::string::npos) << body << error_of(body).message();
}

TEST(ProgramTest, SurvivesMutilatedText) {
  std::string text = ElementKernel("u32", "b32", "u32", "b32",
                                   "@%p1 bra L; setp.ne.u32 %p1|%p2,%a,%b; shfl.sync.idx.b32 %d|%p3,%a,0,31,-1; "
                                   "bar.sync 0; L: lop3.b32 %d,%a,%b,%c,0x11; ld.global.v2.u32 {%r5,%r6},[%rd1];");
  ASSERT_TRUE(CompileError(text).ok());
  uint64_t random = 88172645463325252;
  int compiled = 0;
  for (int k = 0; k < 3000; ++k) {
    std::string broken = text;
    for (int n = 0; n < 3; ++n) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      size_t at = PtxHeader().size() + random % (broken.size() - PtxHeader().size());
      if (random >> 60 & 1) {
        broken.erase(at, 1 + (random >> 50 & 7));
      } else {
        broken[at] = broken[random >> 20 & 255];
      }
    }
    compiled += CompileError(broken).ok();
  }
  EXPECT_LT(compiled, 3000);
}

}  // namespace
}  // namespace tally::sim_driver
