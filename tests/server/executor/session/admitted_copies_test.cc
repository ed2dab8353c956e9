// Copies and fills of best-effort sessions beside a high-priority executor, under the default policy.
#include "server/executor/session/admitted_copies.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ostream>
#include <thread>
#include <utility>

#include "server/executor/dispatch/activity_page.h"
#include "tests/server/executor/fakes/executor_fixture.h"
#include "tests/support/temporary_directory.h"

namespace tally::fakes {
namespace {

using shm::Op;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint32_t kAddress = static_cast<uint32_t>(shm::Place::kAddress);

// What the driver was asked for: memory that nobody touches.
struct Piece {
  uint64_t at = 0;
  uint64_t size_bytes = 0;
  bool operator==(const Piece&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Piece& piece) {
  return out << "{at " << piece.at << ", " << piece.size_bytes << " bytes}";
}

std::mutex pieces_mutex;
std::vector<Piece> pieces;
std::atomic<bool> does_anything_end{true};
// Begins high-priority work when the next piece is put on its stream.
std::atomic<server::ActivityPage*> busy_after_a_piece{nullptr};

CUresult Note(uint64_t at, uint64_t size_bytes) {
  const std::lock_guard lock(pieces_mutex);
  pieces.push_back({at, size_bytes});
  if (server::ActivityPage* page = busy_after_a_piece.exchange(nullptr)) page->SetBusy(0);
  return CUDA_SUCCESS;
}
std::vector<Piece> TakePieces() {
  const std::lock_guard lock(pieces_mutex);
  return std::exchange(pieces, {});
}
size_t NumPieces() {
  const std::lock_guard lock(pieces_mutex);
  return pieces.size();
}

class AdmittedCopiesTest : public ExecutorFixture {
 protected:
  static constexpr uint64_t kDevice = uint64_t{1} << 45;

  void Configure(server::ExecutorConfig& config) override {
    TakePieces();
    table_ = driver_.table();
    // What the queue of a device asks once: how many multiprocessors there are.
    table_.cuCtxGetDevice = [](CUdevice* device) -> CUresult { return *device = 0, CUDA_SUCCESS; };
    table_.cuMemAlloc_v2 = [](CUdeviceptr* address, size_t) -> CUresult { return *address = kDevice, CUDA_SUCCESS; };
    table_.cuMemFree_v2 = [](CUdeviceptr) -> CUresult { return CUDA_SUCCESS; };
    table_.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void*, size_t size, CUstream) { return Note(to, size); };
    table_.cuMemcpyDtoDAsync_v2 = [](CUdeviceptr to, CUdeviceptr, size_t size, CUstream) { return Note(to, size); };
    table_.cuMemsetD32Async = [](CUdeviceptr at, unsigned, size_t count, CUstream) { return Note(at, 4 * count); };
    table_.cuMemsetD2D16Async = [](CUdeviceptr at, size_t pitch, unsigned short, size_t, size_t height, CUstream) {
      return Note(at, pitch * height);
    };
    table_.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D* p, CUstream) {
      EXPECT_EQ(p->srcY, p->dstY);
      EXPECT_EQ(p->srcZ, p->dstZ);
      return Note((p->dstZ * p->dstHeight + p->dstY) * p->dstPitch, p->WidthInBytes * p->Height * p->Depth);
    };
    does_anything_end = true;
    table_.cuEventQuery = [](CUevent) { return does_anything_end ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; };
    config.driver_table_for_testing = &table_;
    config.activity_path = directory_.path() + "/activity";
  }
  void SetUp() override {
    ExecutorFixture::SetUp();
    auto page = server::ActivityPage::Open(directory_.path() + "/activity");
    ASSERT_TRUE(page) << page.error().ToString();
    high_ = std::move(*page);
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    ASSERT_NE(channel_, nullptr);
    ASSERT_EQ(Allocate(*channel_, 1024 * kMiB), kDevice);
    const auto pinned = client_->Request(shm::SessionRequestKind::kAllocateHost, 32 * kMiB, 0, 0, &pinned_fd_);
    ASSERT_TRUE(pinned && pinned->cuda_result == 0);
    host_ = pinned->value[0];
    // The streams and whatever comes with them.
    channel_->Post(Op::kFill, FillOf(1));
    Synchronize();
    TakePieces();
    driver_.TakeTrace();
  }

  Payload CopyUp(uint64_t size_bytes, uint64_t stream = 1) const {
    return Payload().Put(shm::Copy{kDevice, host_, size_bytes, stream, kAddress, kAddress});
  }
  static Payload FillOf(uint64_t num_words) { return Payload().Put(shm::Fill{kDevice, 0, num_words, 1, 1, 0, 4}); }
  void Synchronize(ScriptedChannel* channel = nullptr) {
    EXPECT_EQ((channel != nullptr ? channel : channel_.get())->Call(Op::kSynchronizeContext).result, 0u);
  }
  std::vector<Piece> PiecesOf(Op op, const Payload& payload) {
    channel_->Post(op, payload);
    Synchronize();
    return TakePieces();
  }
  size_t NumEvents() {
    const std::vector<std::string> trace = driver_.TakeTrace();
    return static_cast<size_t>(
        std::count_if(trace.begin(), trace.end(), [](const auto& line) { return line.starts_with("record"); }));
  }
  void BeginHighPriorityWork() {
    ASSERT_TRUE(high_->ClaimSlot().ok());
    high_->SetBusy(0);
  }
  void EndHighPriorityWork() { high_->SetIdle(0, {}); }
  // There is such an executor, and it has worked on the device.
  void BeginAndEndHighPriorityWork() {
    BeginHighPriorityWork();
    EndHighPriorityWork();
  }
  // Requests of the first session that are being carried out or have been.
  uint64_t NumRequests() { return executor_->Snapshot().at(0).figures["requests"]; }
  static void WaitALittle() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

  const TemporaryDirectory directory_;
  server::DriverTable table_;
  std::unique_ptr<server::ActivityPage> high_;
  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
  UniqueFd pinned_fd_;
  uint64_t host_ = 0;
};

TEST_F(AdmittedCopiesTest, NothingIsCutNorMarkedWhileThereIsNobodyToWaitFor) {
  EXPECT_EQ(PiecesOf(Op::kCopy, CopyUp(20 * kMiB)), (std::vector<Piece>{{kDevice, 20 * kMiB}}));
  EXPECT_EQ(PiecesOf(Op::kFill, FillOf(150 * kMiB)), (std::vector<Piece>{{kDevice, 600 * kMiB}}));
  EXPECT_EQ(NumEvents(), 0u);
}

TEST_F(AdmittedCopiesTest, LargeOnesAreCut) {
  BeginAndEndHighPriorityWork();
  EXPECT_EQ(PiecesOf(Op::kCopy, CopyUp(20 * kMiB)),
            (std::vector<Piece>{{kDevice, 8 * kMiB}, {kDevice + 8 * kMiB, 8 * kMiB}, {kDevice + 16 * kMiB, 4 * kMiB}}));
  const shm::Copy on_device{kDevice, kDevice, 300 * kMiB, 1, kAddress, kAddress};
  EXPECT_EQ(PiecesOf(Op::kCopy, Payload().Put(on_device)),
            (std::vector<Piece>{{kDevice, 256 * kMiB}, {kDevice + 256 * kMiB, 44 * kMiB}}));
  EXPECT_EQ(PiecesOf(Op::kFill, FillOf(75 * kMiB)),
            (std::vector<Piece>{{kDevice, 256 * kMiB}, {kDevice + 256 * kMiB, 44 * kMiB}}));
  // Rows of 1 MiB, a quarter of them written: 1024 rows of 256 KiB fit.
  const shm::Fill rows{kDevice, kMiB, kMiB / 8, 1024, 1, 0, 2};
  EXPECT_EQ(PiecesOf(Op::kFill, Payload().Put(rows)), (std::vector<Piece>{{kDevice, 1024 * kMiB}}));
  const shm::Fill full_rows{kDevice, kMiB, kMiB / 2, 400, 1, 0, 2};
  EXPECT_EQ(PiecesOf(Op::kFill, Payload().Put(full_rows)),
            (std::vector<Piece>{{kDevice, 256 * kMiB}, {kDevice + 256 * kMiB, 144 * kMiB}}));
  const shm::Fill spaced_rows{kDevice, 2 * kMiB, kMiB / 2, 400, 1, 0, 2};
  EXPECT_EQ(PiecesOf(Op::kFill, Payload().Put(spaced_rows)),
            (std::vector<Piece>{{kDevice, 512 * kMiB}, {kDevice + 512 * kMiB, 288 * kMiB}}));
}

TEST_F(AdmittedCopiesTest, LargeBoxesAreCutIntoSlicesOrRows) {
  BeginAndEndHighPriorityWork();
  shm::CopyBox box{};
  box.stream = 1;
  box.source = {host_, 0, 0, 0, 0, 0, kAddress, 0};
  box.destination = {kDevice, 0, 0, 0, 0, 0, kAddress, 0};
  box.width_bytes = kMiB;
  box.height = 3;
  box.depth = 5;  // slices of 3 MiB: two at a time
  EXPECT_EQ(PiecesOf(Op::kCopyBox, Payload().Put(box)),
            (std::vector<Piece>{{0, 6 * kMiB}, {6 * kMiB, 6 * kMiB}, {12 * kMiB, 3 * kMiB}}));
  box.height = 10;
  box.depth = 2;  // slices of 10 MiB: rows
  EXPECT_EQ(PiecesOf(Op::kCopyBox, Payload().Put(box)),
            (std::vector<Piece>{{0, 8 * kMiB}, {8 * kMiB, 2 * kMiB}, {10 * kMiB, 8 * kMiB}, {18 * kMiB, 2 * kMiB}}));
}

TEST_F(AdmittedCopiesTest, ASmallOneCostsOneEventAsALaunchDoes) {
  const uint64_t kernel = LoadKernel(*channel_, "kernel");
  BeginAndEndHighPriorityWork();
  driver_.TakeTrace();
  const auto events_of = [&](Op op, const Payload& payload) {
    channel_->Post(op, payload);
    Synchronize();
    return NumEvents();
  };
  EXPECT_EQ(events_of(Op::kLaunch, LaunchOf(kernel, 1)), 1u);
  EXPECT_EQ(events_of(Op::kCopy, CopyUp(16)), 1u);
  EXPECT_EQ(events_of(Op::kFill, FillOf(4)), 1u);
}

TEST_F(AdmittedCopiesTest, TheyWaitHoldingTheirSessionsSequencerAndComeInOrder) {
  BeginHighPriorityWork();
  const auto other_channel = client_->OpenChannel();
  auto other_client = Connect();
  const auto others_channel = other_client->OpenChannel();
  const uint64_t num_before = NumRequests();
  channel_->Post(Op::kCopy, CopyUp(20 * kMiB));
  other_channel->Post(Op::kFill, FillOf(4));  // the same session's: behind it
  while (NumRequests() == num_before) std::this_thread::yield();
  WaitALittle();
  EXPECT_EQ(NumPieces(), 0u) << "high-priority work is still there";
  Synchronize(others_channel.get());  // another session is not kept
  EndHighPriorityWork();
  Synchronize(other_channel.get());
  const std::vector<Piece> made = TakePieces();
  ASSERT_EQ(made.size(), 4u);
  EXPECT_EQ(made.back(), (Piece{kDevice, 16}));
  EXPECT_EQ(executor_->Snapshot().at(0).figures["held_launches"], 1u) << "the fill waited for its turn";
}

TEST_F(AdmittedCopiesTest, OneInPiecesStopsBetweenThem) {
  BeginAndEndHighPriorityWork();
  busy_after_a_piece = high_.get();
  channel_->Post(Op::kCopy, CopyUp(20 * kMiB));
  while (NumPieces() == 0) std::this_thread::yield();
  WaitALittle();
  EXPECT_EQ(NumPieces(), 1u);
  EndHighPriorityWork();
  Synchronize();
  EXPECT_EQ(TakePieces().size(), 3u);
}

// The stream waits for something that the program does after the call.
TEST_F(AdmittedCopiesTest, BehindWhatDoesNotEndTheRestGoesWhole) {
  BeginAndEndHighPriorityWork();
  does_anything_end = false;
  EXPECT_EQ(
      PiecesOf(Op::kCopy, CopyUp(32 * kMiB)),
      (std::vector<Piece>{{kDevice, 8 * kMiB}, {kDevice + 8 * kMiB, 8 * kMiB}, {kDevice + 16 * kMiB, 16 * kMiB}}));
}

TEST_F(AdmittedCopiesTest, CapturedOnesPassWhole) {
  const uint64_t stream = channel_->Call(Op::kCreateStream, Payload().Put(shm::CreateStream{0, 0})).Get<uint64_t>();
  BeginHighPriorityWork();
  ASSERT_EQ(channel_->Call(Op::kBeginCapture, Payload().Put(shm::BeginCapture{stream, 0, 0, 0, 0, 0})).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kCopy, CopyUp(20 * kMiB, stream)).result, 0u);
  EXPECT_EQ(TakePieces(), (std::vector<Piece>{{kDevice, 20 * kMiB}}));
}

TEST_F(AdmittedCopiesTest, AClientThatLeavesMeanwhileIsLetGo) {
  BeginHighPriorityWork();
  channel_->Post(Op::kCopy, CopyUp(20 * kMiB));
  WaitALittle();
  client_->Hangup();
  WaitForEnds(1);
  EXPECT_EQ(NumPieces(), 0u);
}

TEST_F(AdmittedCopiesTest, HighPrioritySessionsCopyAtOnceAndWhole) {
  BeginHighPriorityWork();
  control::ShareChange change;
  change.priority_class = shm::PriorityClass::kHighPriority;
  ASSERT_TRUE(executor_->SetPriority(1, change).ok());
  EXPECT_EQ(PiecesOf(Op::kCopy, CopyUp(20 * kMiB)), (std::vector<Piece>{{kDevice, 20 * kMiB}}));
}

}  // namespace
}  // namespace tally::fakes
