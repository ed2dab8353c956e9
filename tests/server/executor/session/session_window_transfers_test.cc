// Copies and fills that a session's window holds among launches.
#include <algorithm>
#include <random>
#include <vector>

#include "tests/server/executor/session/session_window_fixture.h"

namespace tally::fakes {
namespace {

constexpr auto kAddress = static_cast<uint32_t>(shm::Place::kAddress);
constexpr auto kArena = static_cast<uint32_t>(shm::Place::kArena);

class SessionWindowTransfersTest : public SessionWindowTest {
 protected:
  // Arrays of rows of words, all in one allocation, so that only boxes tell them apart.
  static constexpr size_t kArrays = 3, kRows = 4, kColumns = 4, kWords = kRows * kColumns;
  static constexpr uint64_t kPitch = kColumns * kWordBytes;

  void SetUp() override {
    SessionWindowTest::SetUp();
    base_ = Allocate(*channel_, kArrays * kWords * kWordBytes);
    words_.assign(kArrays * kWords, 0);
    const shm::Fill all{base_, 0, words_.size(), 1, kLegacyStream, 0, 4};
    EXPECT_EQ(channel_->Call(Op::kFill, Payload().Put(all)).result, 0u);
  }
  uint64_t At(size_t word) const { return base_ + word * kWordBytes; }

  void Launch(size_t word, uint32_t factor, uint32_t addend) {
    channel_->Post(Op::kLaunch, PutAt(kernel_, At(word), factor, addend));
    words_[word] = words_[word] * factor + addend;
  }
  void Copy(size_t to, size_t from, size_t num) {
    channel_->Post(Op::kCopy, Payload().Put(shm::Copy{At(to), At(from), num * 4, kLegacyStream, kAddress, kAddress}));
    std::copy_n(words_.begin() + static_cast<long>(from), num, words_.begin() + static_cast<long>(to));
  }
  void Fill(size_t to, size_t num, uint32_t value) {
    channel_->Post(Op::kFill, Payload().Put(shm::Fill{At(to), 0, num, 1, kLegacyStream, value, 4}));
    std::fill_n(words_.begin() + static_cast<long>(to), num, value);
  }
  void FillHalves(size_t to, size_t num, uint16_t value) {
    channel_->Post(Op::kFill, Payload().Put(shm::Fill{At(to), 0, num * 2, 1, kLegacyStream, value, 2}));
    std::fill_n(words_.begin() + static_cast<long>(to), num, value * 0x10001u);
  }
  // Rows of a box of `columns`, from the first word of each.
  void FillBox(size_t to, size_t rows, size_t columns, uint32_t value) {
    channel_->Post(Op::kFill, Payload().Put(shm::Fill{At(to), kPitch, columns, rows, kLegacyStream, value, 4}));
    for (size_t i = 0; i < rows * columns; ++i) words_[to + i / columns * kColumns + i % columns] = value;
  }
  void CopyBox(size_t to, size_t from, size_t rows, size_t columns) {
    shm::CopyBox box{};
    box.destination = {base_, to % kColumns * 4, to / kColumns, 0, kPitch, 0, kAddress, 0};
    box.source = {base_, from % kColumns * 4, from / kColumns, 0, kPitch, 0, kAddress, 0};
    box.width_bytes = columns * 4;
    box.height = rows;
    box.depth = 1;
    box.stream = kLegacyStream;
    channel_->Post(Op::kCopyBox, Payload().Put(box));
    for (size_t i = 0; i < rows * columns; ++i) {
      const size_t at = i / columns * kColumns + i % columns;
      words_[to + at] = words_[from + at];
    }
  }
  void ExpectWords() {
    for (size_t i = 0; i < words_.size(); ++i) ASSERT_EQ(Read(At(i)), words_[i]) << i;
    EXPECT_EQ(AsyncError(), 0u);
  }

  // One operation, the same for the same numbers but for `k`. Arrays are renamed where it makes no other shape.
  void Play(std::mt19937& random, uint32_t k, const std::vector<size_t>& arrays, bool has_boxes) {
    const auto below = [&](size_t bound) { return random() % bound; };
    const size_t a = below(kArrays), b = (a + 1 + below(kArrays - 1)) % kArrays;
    const size_t first = below(kWords), num = 1 + below(kWords - first);
    const size_t row = below(kRows), column = below(kColumns), rows = 1 + below(kRows - row),
                 columns = 1 + below(kColumns - column);
    const size_t to = arrays[a] * kWords, from = arrays[b] * kWords;
    switch (below(has_boxes ? 7 : 5)) {
      case 0:
        return Copy(to + first, from + first, num);
      case 1:
        return Fill(to + first, num, 3 * k);
      case 2:
        return FillHalves(to + first, num, static_cast<uint16_t>(k));
      case 3:
      case 4:
        return Launch(to + first, 3, k);
      case 5:
        return FillBox(to + row * kColumns + column, rows, columns, 77);
      default:
        return CopyBox(to + row * kColumns + column, from + row * kColumns + column, rows, columns);
    }
  }

  uint64_t base_ = 0;
  std::vector<uint32_t> words_;
};

TEST_F(SessionWindowTransfersTest, CopiesAndFillsAreHeldWithLaunches) {
  for (uint32_t k = 1; k < 4; ++k) {
    HoldBack();
    Fill(0, 2, k);
    Launch(0, 2, 5);
    Copy(4, 0, 2);
    Launch(0, 1, 1);
    FillBox(8, 2, 2, k);
    CopyBox(10, 8, 2, 1);
    Ask(*channel_, Op::kSynchronizeContext);
    LetGo();
    EXPECT_EQ(channel_->Await().result, 0u);
    ExpectWords();
  }
  EXPECT_EQ(Figure("window_held"), 18u);
  EXPECT_EQ(Figure("window_transfers"), 12u);
  EXPECT_EQ(Batches(), 3u);
  EXPECT_EQ(Figure("device_to_device_bytes"), 3 * 16u);
}

// In whatever order the software GPU takes what does not wait.
TEST_F(SessionWindowTransfersTest, TheBitsAreThoseOfProgramOrder) {
  for (uint32_t program = 0; program < 16; ++program) {
    const bool has_boxes = program % 2 == 0;
    std::vector<size_t> arrays = {0, 1, 2};
    for (uint32_t use = 0; use < 5; ++use) {
      std::mt19937 random(program);
      HoldBack();
      for (int i = 0; i < 40; ++i) Play(random, 10 * use + 7, arrays, has_boxes);
      Ask(*channel_, Op::kSynchronizeContext);
      LetGo();
      EXPECT_EQ(channel_->Await().result, 0u);
      if (!has_boxes) std::rotate(arrays.begin(), arrays.begin() + 1, arrays.end());
    }
    ExpectWords();
  }
  EXPECT_GE(Figure("window_graphs"), 16 * 4u);
  EXPECT_EQ(Figure("window_held"), 16 * 5 * 40u);
}

// The host's memory, waits for the answer, and what nobody owns.
TEST_F(SessionWindowTransfersTest, OtherCopiesComeBehindWhatIsHeld) {
  HoldBack();
  Launch(0, 1, 7);
  Fill(1, 1, 9);
  Ask(*channel_, Op::kCopy, CopyOf(At(0)));
  LetGo();
  EXPECT_EQ(AwaitWord(*channel_), 7u);
  EXPECT_EQ(Batches(WindowEnd::kRequest), 1u);

  HoldBack();
  Launch(0, 1, 1);
  const uint32_t value = 100;
  std::memcpy(channel_->arena(), &value, sizeof(value));
  channel_->Post(Op::kCopy, Payload().Put(shm::Copy{At(0), 0, 4, kLegacyStream, kAddress, kArena}));
  words_[0] = value;
  Launch(0, 1, 1);
  Ask(*channel_, Op::kFill, Payload().Put(shm::Fill{At(2), 0, 1, 1, kLegacyStream, 5, 4}));
  words_[2] = 5;
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  ExpectWords();
  EXPECT_EQ(Batches(), 3u);
  EXPECT_EQ(Figure("window_transfers"), 1u);
}

TEST_F(SessionWindowTransfersTest, OfAnotherStreamIsABatchOfItsOwn) {
  const uint64_t stream = CreateStream(CU_STREAM_DEFAULT);
  HoldBack();
  Launch(0, 1, 7);
  channel_->Post(Op::kCopy, Payload().Put(shm::Copy{At(1), At(0), 4, stream, kAddress, kAddress}));
  words_[1] = 7;
  Fill(0, 1, 3);
  Ask(*channel_, Op::kSynchronizeContext);
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  EXPECT_EQ(Batches(), 3u);
  ExpectWords();
}

TEST_F(SessionWindowTransfersTest, OfMemoryThatIsNotTheSessionsIsAnError) {
  HoldBack();
  Launch(0, 1, 7);
  channel_->Post(Op::kFill, Payload().Put(shm::Fill{At(words_.size()) - 4, 0, 2, 1, kLegacyStream, 0, 4}));
  Fill(1, 1, 9);
  Ask(*channel_, Op::kSynchronizeContext);
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  EXPECT_EQ(AsyncError(), static_cast<uint32_t>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(Read(At(0)), 7u);
  EXPECT_EQ(Read(At(1)), 9u);
}

TEST_F(SessionWindowTransfersTest, MemoryIsFreedBehindACopyOfIt) {
  const uint64_t other = Allocate(*channel_, 4);
  HoldBack();
  Launch(0, 1, 7);
  channel_->Post(Op::kCopy, Payload().Put(shm::Copy{other, At(0), 4, kLegacyStream, kAddress, kAddress}));
  channel_->Post(Op::kCopy, Payload().Put(shm::Copy{At(1), other, 4, kLegacyStream, kAddress, kAddress}));
  words_[1] = 7;
  Ask(*channel_, Op::kFree, Payload().PutWord(other));
  LetGo();
  EXPECT_EQ(channel_->Await().result, 0u);
  ExpectWords();
}

}  // namespace
}  // namespace tally::fakes
