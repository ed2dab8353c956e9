#include "client-shim/origins/ptx_origins.h"

#include <gtest/gtest.h>

#include <thread>

#include "images/kernel_identity.h"
#include "tests/images/test_images.h"

namespace tally::client_shim {
namespace {

using images::BytesOf;
using images::ReadImage;

PtxText Text(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

TEST(PtxOrigins, KnowsALinkedCubinByItsContent) {
  PtxOrigins origins(1 << 20);
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  EXPECT_EQ(origins.Find(cubin), nullptr);
  const PtxText text = Text("made from this");
  origins.Learn(cubin, text);
  const std::vector<std::byte> copy = cubin;
  EXPECT_EQ(origins.Find(copy), text);
  for (size_t at = 0; at < cubin.size(); at += 501) {
    std::vector<std::byte> other = cubin;
    other[at] ^= std::byte{1};
    EXPECT_EQ(origins.Find(other), nullptr) << at;
  }
  EXPECT_EQ(origins.Find(std::span(cubin).first(cubin.size() - 1)), nullptr);
  EXPECT_EQ(origins.Find({}), nullptr);
}

TEST(PtxOrigins, KnowsKernelsThroughALinker) {
  const std::vector<std::byte> separate = ReadImage("separate.cubin"), linked = ReadImage("linked.cubin");
  PtxOrigins origins(1 << 20);
  origins.Learn(separate, Text("eight kernels"));
  // One of its kernels calls a function that could be of another unit: in doubt nothing is known of the whole.
  EXPECT_EQ(origins.Find(linked), nullptr);
  // Not linked, it cannot be loaded, and is no image.
  EXPECT_EQ(origins.Find(separate), nullptr);
}

// A copy of it in which the code of one kernel is another.
std::vector<std::byte> WithAnotherKernel(const std::vector<std::byte>& cubin) {
  const auto before = images::IdentifyKernels(cubin);
  for (size_t at = 64; at < cubin.size(); ++at) {
    std::vector<std::byte> changed = cubin;
    changed[at] ^= std::byte{1};
    const auto after = images::IdentifyKernels(changed);
    if (!after || after->size() != before->size()) continue;
    size_t num_changed = 0;
    for (size_t i = 0; i < before->size(); ++i) num_changed += (*before)[i].identity != (*after)[i].identity ? 1 : 0;
    if (num_changed == 1) return changed;
  }
  ADD_FAILURE() << "each byte belongs to none or to several";
  return cubin;
}

TEST(PtxOrigins, KernelsOfTwoTextsAreOfNone) {
  const std::vector<std::byte> plain = ReadImage("plain.cubin"), linked = ReadImage("plain_linked.cubin");
  PtxOrigins origins(1 << 20);
  origins.Learn(plain, Text("one text"));
  ASSERT_NE(origins.Find(linked), nullptr);
  EXPECT_EQ(*origins.Find(linked), "one text");
  // All kernels but one are the later text's now.
  origins.Learn(WithAnotherKernel(plain), Text("another text"));
  EXPECT_EQ(origins.Find(linked), nullptr);
}

TEST(PtxOrigins, GivesAStepBackOnce) {
  PtxOrigins origins(1 << 20);
  const FileCache::Key step = FileCache::KeyOf({BytesOf("source")}), other = FileCache::KeyOf({BytesOf("Source")});
  origins.NoteStep(step, Text("ptx"));
  EXPECT_EQ(origins.TakeStep(other), nullptr);
  EXPECT_EQ(*origins.TakeStep(step), "ptx");
  EXPECT_EQ(origins.TakeStep(step), nullptr);
  EXPECT_EQ(origins.size_bytes(), 0u);
}

TEST(PtxOrigins, ForgetsTheOldestFirst) {
  constexpr uint64_t kMaxBytes = 100'000;
  PtxOrigins origins(kMaxBytes);
  const auto step = [](int i) { return FileCache::KeyOf({BytesOf(std::to_string(i))}); };
  for (int i = 0; i < 100; ++i) {
    origins.NoteStep(step(i), Text(std::string(5000, 'x')));
    EXPECT_LE(origins.size_bytes(), kMaxBytes);
  }
  EXPECT_EQ(origins.TakeStep(step(0)), nullptr);
  EXPECT_EQ(origins.TakeStep(step(50)), nullptr);
  EXPECT_NE(origins.TakeStep(step(99)), nullptr);
  EXPECT_NE(origins.TakeStep(step(90)), nullptr);
  origins.NoteStep(step(1), Text(std::string(kMaxBytes, 'x')));  // never fits, and pushes nothing out
  EXPECT_EQ(origins.TakeStep(step(1)), nullptr);
  EXPECT_NE(origins.TakeStep(step(98)), nullptr);
}

TEST(PtxOrigins, TheLatestLessonCounts) {
  PtxOrigins origins(2'000);
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  for (int i = 0; i < 50; ++i) {
    origins.Learn(cubin, Text("text " + std::to_string(i)));
    EXPECT_EQ(*origins.Find(cubin), "text " + std::to_string(i));
    EXPECT_LE(origins.size_bytes(), 2'000u);
  }
  const uint64_t size_bytes = origins.size_bytes();
  origins.Learn(cubin, Text("text 49"));  // nothing new
  EXPECT_EQ(origins.size_bytes(), size_bytes);
}

TEST(PtxOrigins, WhatWasLearntAnewOutlivesItsFirstLesson) {
  constexpr int kFit = 18;
  PtxOrigins origins(100'000);
  const auto step = [](int i) { return FileCache::KeyOf({BytesOf(std::to_string(i))}); };
  for (const char letter : {'a', 'b'}) origins.NoteStep(step(0), Text(std::string(5000, letter)));
  for (int i = 1; i < kFit; ++i)
    origins.NoteStep(step(i), Text(std::string(5000, 'x')));  // the last pushes out the a's
  const PtxText text = origins.TakeStep(step(0));
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->front(), 'b');
  EXPECT_NE(origins.TakeStep(step(1)), nullptr);
}

TEST(PtxOrigins, TakesNonsense) {
  PtxOrigins origins(1 << 20);
  const std::vector<std::byte> cubin = ReadImage("separate.cubin");
  for (size_t size = 0; size < cubin.size(); size += 61) {
    origins.Learn(std::span(cubin).first(size), Text("ptx"));
    (void)origins.Find(std::span(cubin).first(size));
  }
  origins.Learn(cubin, nullptr);
  EXPECT_EQ(origins.size_bytes(), 0u);
}

TEST(PtxOrigins, ServesThreadsAtOnce) {
  PtxOrigins origins(20'000);
  const std::vector<std::byte> cubin = ReadImage("sm_90.cubin");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 300; ++i) {
        const FileCache::Key step = FileCache::KeyOf({BytesOf(std::to_string(thread * 1000 + i))});
        origins.NoteStep(step, Text(std::to_string(thread)));
        const PtxText taken = origins.TakeStep(step);
        EXPECT_TRUE(taken == nullptr || *taken == std::to_string(thread));
        origins.Learn(cubin, Text("text " + std::to_string(thread)));
        const PtxText found = origins.Find(cubin);
        EXPECT_TRUE(found == nullptr || found->starts_with("text "));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tally::client_shim
