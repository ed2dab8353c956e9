#include "server/executor/issue/segment_compiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "images/fat_writer.h"

namespace tally::server {
namespace {

std::string KernelText(const std::string& name, const std::string& body = "st.global.u32 [%rd1], 1;") {
  return ".visible .entry " + name + "(.param .u64 p)\n{\n\t.reg .b64 %rd<4>;\n\tld.param.u64 %rd1, [p];\n\t" + body +
         "\n\tret;\n}\n";
}

std::string Text(const std::string& kernels, int target = 90) {
  return ".version 8.0\n.target sm_" + std::to_string(target) + "\n.address_size 64\n" + kernels;
}

std::shared_ptr<const ImageBytes> Image(std::span<const std::byte> bytes) {
  auto image = std::make_shared<ImageBytes>();
  image->bytes.assign(bytes.begin(), bytes.end());
  return image;
}

std::shared_ptr<const ImageBytes> Image(const std::string& text) {
  return Image(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
}

const FoundSegments& Await(const AwaitedSegments& awaited) {
  while (awaited.found() == nullptr) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return *awaited.found();
}

std::string FoundBarrier(SegmentCompiler& compiler, std::shared_ptr<const ImageBytes> image,
                         const std::string& kernel = "kernel") {
  const auto awaited = compiler.Find(std::move(image), kernel, 90);
  const char* barrier = Await(*awaited).barrier;
  return barrier != nullptr ? barrier : "";
}

TEST(SegmentCompilerTest, FindsWhatTheKernelDoes) {
  SegmentCompiler compiler;
  const auto awaited = compiler.Find(Image(Text(KernelText("other") + KernelText("kernel"))), "kernel", 90);
  const FoundSegments& found = Await(*awaited);
  EXPECT_EQ(found.barrier, nullptr);
  EXPECT_EQ(found.segments.kernel, "kernel");
  ASSERT_EQ(found.segments.accesses.size(), 1u);
  EXPECT_EQ(found.inputs, (std::vector<ptx_transforms::ParameterPiece>{{0, 8}}));
}

TEST(SegmentCompilerTest, SameContentIsLookedAtOnce) {
  SegmentCompiler compiler;
  const std::string text = Text(KernelText("kernel") + KernelText("other"));
  const auto first = compiler.Find(Image(text), "kernel", 90), again = compiler.Find(Image(text), "kernel", 90);
  const auto other = compiler.Find(Image(text), "other", 90);
  const auto changed = compiler.Find(Image(text + "\n"), "kernel", 90);
  EXPECT_EQ(&Await(*first), &Await(*again));
  EXPECT_NE(first->number(), again->number()) << "each kernel of a session has a number of its own";
  EXPECT_NE(&Await(*first), &Await(*other));
  EXPECT_NE(&Await(*first), &Await(*changed));
}

TEST(SegmentCompilerTest, ImagesOfTheSameKernelAreToldApart) {
  SegmentCompiler compiler;
  const auto writes = Image(Text(KernelText("kernel")));
  const auto waits = Image(Text(KernelText("kernel", "st.volatile.global.u32 [%rd1], 1;")));
  EXPECT_EQ(FoundBarrier(compiler, writes), "");
  EXPECT_EQ(FoundBarrier(compiler, waits), "volatile");
  EXPECT_EQ(FoundBarrier(compiler, writes), "");
}

std::set<std::string> Threads() {
  std::set<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(entry.path().filename());
  }
  return threads;
}
// How many threads there are that were not in `before`. Those that ended may still be listed after they were joined, so
// counts of all threads would not do.
size_t NumNewThreads(const std::set<std::string>& before) {
  const auto now = Threads();
  return static_cast<size_t>(
      std::count_if(now.begin(), now.end(), [&](const std::string& thread) { return !before.contains(thread); }));
}

TEST(SegmentCompilerTest, WithoutQuestionsThereIsNoThread) {
  const auto before = Threads();
  SegmentCompiler compiler;
  EXPECT_EQ(NumNewThreads(before), 0u);
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(KernelText("kernel")))), "");
  EXPECT_EQ(NumNewThreads(before), 1u);
}

TEST(SegmentCompilerTest, KernelsWithoutPtx) {
  SegmentCompiler compiler;
  const std::string elf(
      "\x7f"
      "ELF machine code");
  EXPECT_EQ(FoundBarrier(compiler, Image(elf)), "no-ptx");
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(KernelText("other")))), "no-ptx");
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(KernelText("kernel2")))), "no-ptx") << "a name that begins like it";
  EXPECT_EQ(FoundBarrier(compiler, Image(std::span<const std::byte>())), "no-ptx");
}

TEST(SegmentCompilerTest, SaysWhichBarrier) {
  SegmentCompiler compiler;
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(KernelText("kernel", "st.volatile.global.u32 [%rd1], 1;")))), "volatile");
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(KernelText("kernel", "trap;")))), "trap");
}

TEST(SegmentCompilerTest, SurvivesTextThatMakesNoSense) {
  SegmentCompiler compiler;
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(".visible .entry kernel(.param .u64 p)\n{{{{{ ret"))), "not-understood");
  EXPECT_EQ(FoundBarrier(compiler, Image(".version 8.0\n.target sm_90\n.address_size 32\n" + KernelText("kernel"))),
            "not-understood");
  std::string nested = "\t";
  for (int k = 0; k < 100'000; ++k) nested += "{";
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(KernelText("kernel", nested)))), "not-understood");
  // Whatever comes of damaged text, it is an answer.
  const std::string whole = Text(KernelText("kernel", "add.s64 %rd2, %rd1, 8;\n\tst.global.u32 [%rd2], 1;"));
  std::mt19937_64 random(1);
  for (int k = 0; k < 300; ++k) {
    std::string damaged = whole.substr(0, random() % whole.size());
    for (size_t n = random() % 4; n > 0 && !damaged.empty(); --n)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    static_cast<void>(FoundBarrier(compiler, Image(damaged)));
  }
  EXPECT_EQ(FoundBarrier(compiler, Image(whole)), "");
}

TEST(SegmentCompilerTest, WhatIsTooLargeIsNotLookedAt) {
  const auto image = Image(Text(KernelText("kernel", "st.global.u32 [%rd1], 1;\n\tst.global.u32 [%rd1+64], 1;")));
  SegmentCompiler texts(false, {.text_bytes = 100}), nodes(false, {.nodes = 1}), accesses(false, {.accesses = 1}),
      none(false, {.questions = 0});
  EXPECT_EQ(FoundBarrier(texts, image), "too-large");
  EXPECT_EQ(FoundBarrier(nodes, image), "too-large");
  EXPECT_EQ(FoundBarrier(accesses, image), "too-large");
  EXPECT_EQ(none.Find(image, "kernel", 90), nullptr) << "to be asked again";
}

TEST(SegmentCompilerTest, KeepsWhatIsUsedAndNoMoreThanItMay) {
  SegmentCompiler compiler(false, {.kept_bytes = 10'000});
  std::vector<std::shared_ptr<const AwaitedSegments>> used;
  std::string barrier;
  while (barrier.empty()) {
    used.push_back(compiler.Find(Image(Text(KernelText("kernel")) + std::string(used.size(), '\n')), "kernel", 90));
    const char* found = Await(*used.back()).barrier;
    barrier = found != nullptr ? found : "";
    ASSERT_LT(used.size(), 100u);
  }
  EXPECT_EQ(barrier, "too-large");
  EXPECT_GT(used.size(), 2u);
  used.clear();
  EXPECT_EQ(FoundBarrier(compiler, Image(Text(KernelText("kernel")) + "// new\n")), "")
      << "nobody uses the others any more";
}

TEST(SegmentCompilerTest, KeepsTheImageAliveAndMayEndWhileQuestionsWait) {
  std::vector<std::shared_ptr<const AwaitedSegments>> awaited;
  {
    SegmentCompiler compiler;
    for (int k = 0; k < 200; ++k)
      awaited.push_back(compiler.Find(Image(Text(KernelText("kernel")) + std::string(k, '\n')), "kernel", 90));
    Await(*awaited[3]);
  }
  EXPECT_EQ(awaited[3]->found()->barrier, nullptr);
}

TEST(SegmentCompilerTest, ManySessionsAskAtOnce) {
  SegmentCompiler compiler;
  const auto image = Image(Text(KernelText("kernel")));
  std::vector<std::thread> sessions;
  std::atomic<int> num_found = 0;
  for (int session = 0; session < 4; ++session) {
    sessions.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const auto own = Image(Text(KernelText("kernel")) + std::string(static_cast<size_t>(k), '\n'));
        num_found += FoundBarrier(compiler, image).empty() && FoundBarrier(compiler, own).empty();
      }
    });
  }
  for (std::thread& session : sessions) session.join();
  EXPECT_EQ(num_found, 200);
}

// The driver takes the machine code; its source need not have been the text beside it.
TEST(SegmentCompilerTest, MachineCodeOfAnotherArchitectureIsOtherCode) {
  SegmentCompiler compiler;
  const std::string code(
      "\x7f"
      "ELF machine code");
  const auto pair = [&](uint32_t cubin_arch, uint32_t target) {
    const std::string text = Text(KernelText("kernel"), static_cast<int>(target));
    images::PtxHead head = images::ReadPtxHead(text).value();
    return Image(images::WriteCubinWithPtx(std::as_bytes(std::span(code)), cubin_arch, text, head));
  };
  EXPECT_EQ(FoundBarrier(compiler, pair(90, 90)), "");
  EXPECT_EQ(FoundBarrier(compiler, pair(90, 80)), "other-code");
  SegmentCompiler for_software(/*is_software=*/true);
  EXPECT_EQ(FoundBarrier(for_software, pair(90, 80)), "");
  EXPECT_EQ(FoundBarrier(compiler, pair(80, 75)), "") << "the driver compiles the text for a 9.0 device";
}

}  // namespace
}  // namespace tally::server
