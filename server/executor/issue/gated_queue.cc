#include "server/executor/issue/gated_queue.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "base/check.h"
#include "server/executor/driver/launch_config.h"

namespace tally::server {
namespace {

constexpr uint64_t kPlacesPerSlab = 512;
// A mark costs about as much as a launch, and what it is for can wait.
constexpr uint32_t kLaunchesPerMark = 8;

constexpr const char* kMarkerText = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry tally_marker(.param .u64 word, .param .u32 number)
{
	.reg .b64 %rd1;
	.reg .b32 %r1;
	ld.param.u64 %rd1, [word];
	ld.param.u32 %r1, [number];
	cvta.to.global.u64 %rd1, %rd1;
	membar.sys;
	st.volatile.global.u32 [%rd1], %r1;
	ret;
}
)";
struct MarkerParameters {
  uint64_t word;
  uint32_t number;
};

}  // namespace

GateControls::~GateControls() {
  for (const CUdeviceptr slab : slabs_) driver.cuMemFree_v2(slab);
  if (read_back_ != nullptr) driver.cuMemFreeHost(read_back_);
  if (signal_ != nullptr) driver.cuStreamDestroy_v2(signal_);
}

CUresult GateControls::Open() {
  if (driver.cuStreamWaitValue32_v2 == nullptr || driver.cuStreamWriteValue32_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  int highest = 0;
  driver.cuCtxGetStreamPriorityRange(&lowest_priority, &highest);
  CUresult result = driver.cuStreamCreateWithPriority(&signal_, CU_STREAM_NON_BLOCKING, highest);
  if (result == CUDA_SUCCESS) {
    result = driver.cuMemHostAlloc(&read_back_, sizeof(device::GateRecord), CU_MEMHOSTALLOC_PORTABLE);
  }
  if (result == CUDA_SUCCESS) result = module_.Load(kMarkerText);
  marker = module_.Find("tally_marker");
  return result == CUDA_SUCCESS ? transfers.Load() : result;
}

CUresult GateControls::Store(CUdeviceptr address, uint32_t value) {
  return driver.cuStreamWriteValue32_v2(signal_, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

CUresult GateControls::Settle() { return driver.cuStreamSynchronize(signal_); }

CUresult GateControls::Read(CUdeviceptr record, device::GateRecord* value) {
  if (const CUresult r = driver.cuMemcpyDtoHAsync_v2(read_back_, record, sizeof(*value), signal_); r != CUDA_SUCCESS) {
    return r;
  }
  if (const CUresult r = Settle(); r != CUDA_SUCCESS) return r;
  std::memcpy(value, read_back_, sizeof(*value));
  return CUDA_SUCCESS;
}

CUresult GateControls::TakePlace(CUdeviceptr* place) {
  if (free_places_.empty()) {
    CUdeviceptr slab = 0;
    if (const CUresult r = driver.cuMemAlloc_v2(&slab, kPlacesPerSlab * kPlaceBytes); r != CUDA_SUCCESS) return r;
    slabs_.push_back(slab);
    for (uint64_t i = kPlacesPerSlab; i-- > 0;) free_places_.push_back(slab + i * kPlaceBytes);
  }
  *place = free_places_.back();
  if (const CUresult r = driver.cuMemsetD32Async(*place, 0, kPlaceBytes / sizeof(uint32_t), signal_);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (const CUresult r = Settle(); r != CUDA_SUCCESS) return r;
  free_places_.pop_back();
  return CUDA_SUCCESS;
}

GatedQueue::~GatedQueue() {
  Forget(log_.size());
  if (resume_ != nullptr) driver_.cuStreamDestroy_v2(resume_);
  controls_.ReturnPlace(place_);
}

CUresult GatedQueue::Open() {
  return driver_.cuStreamCreateWithPriority(&resume_, CU_STREAM_NON_BLOCKING, controls_.lowest_priority);
}

bool GatedQueue::Holds(CUfunction function) const {
  return std::any_of(log_.begin(), log_.end(), [&](const Entry& entry) { return entry.form.function == function; });
}

void GatedQueue::Forget(size_t num_entries) {
  for (size_t i = 0; i < num_entries; ++i) {
    if (log_.front().is_marker) --num_logged_markers_;
    log_.pop_front();
  }
}

CUresult GatedQueue::Run(Entry& entry, CUstream stream, bool is_again) {
  PendingLaunch& launch = entry.launch;
  const auto& [grid, block, shared_bytes] = launch.shape;
  const CUfunction function = entry.form.function;
  device::GateParameters hidden{};
  hidden.record = place_ | device::kGateOn | (entry.form.cluster_blocks != 0 ? device::kGateClusters : 0) |
                  (grid[1] != 1 || grid[2] != 1 ? device::kGateManyAxes : 0);
  hidden.base = entry.base;
  hidden.chunk = entry.form.chunk;
  std::memcpy(launch.parameters.data() + entry.form.hidden_offset, &hidden, sizeof(hidden));
  size_t size_bytes = entry.form.hidden_offset + sizeof(hidden);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size_bytes,
                   CU_LAUNCH_PARAM_END};
  // Between a launch and its repetition the program may have told the function to expect less.
  int allowed = 0;
  constexpr auto kAllowed = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const bool was_lowered = is_again && shared_bytes != 0 &&
                           driver_.cuFuncGetAttribute(&allowed, kAllowed, function) == CUDA_SUCCESS &&
                           allowed < static_cast<int>(shared_bytes);
  if (was_lowered) driver_.cuFuncSetAttribute(function, kAllowed, static_cast<int>(shared_bytes));
  CUresult result = CUDA_SUCCESS;
  if (launch.attributes.empty()) {
    result = driver_.cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes,
                                    stream, nullptr, extra);
  } else {
    const CUlaunchConfig config = LaunchConfig(grid, block, shared_bytes, stream, launch.attributes);
    result = driver_.cuLaunchKernelEx(&config, function, nullptr, extra);
  }
  if (was_lowered) driver_.cuFuncSetAttribute(function, kAllowed, allowed);
  return result;
}

CUresult GatedQueue::Append(const GatedForm& form, PendingLaunch&& launch, bool is_marker) {
  Entry& entry = log_.emplace_back();
  entry.form = form;
  entry.launch = std::move(launch);
  entry.launch.parameters.Resize(form.hidden_offset + sizeof(device::GateParameters));
  const auto num_numbers = static_cast<uint32_t>(form.NumNumbers(entry.launch.shape));
  // Whatever block of it is the first to raise the watermark promises all others, and nobody has promised any before.
  if (form.is_whole) entry.form.chunk = num_numbers;
  entry.base = form.is_whole ? std::max(next_, promised_) : next_;
  entry.end = entry.base + num_numbers;
  entry.is_marker = is_marker;
  if (const CUresult r = Run(entry, stream_, false); r != CUDA_SUCCESS) {
    log_.pop_back();
    return r;
  }
  next_ = entry.end;
  promised_ = std::max(promised_, entry.end + entry.form.chunk);
  if (is_marker) ++num_logged_markers_;
  // Whether a stopped queue has drained is asked of its last entry.
  if (!is_marker && !is_stopped_ && ++num_unmarked_ < kLaunchesPerMark) return CUDA_SUCCESS;
  num_unmarked_ = 0;
  return controls_.completions.Put(stream_, &log_.back().ended);
}

CUresult GatedQueue::Launch(const GatedForm& form, PendingLaunch&& launch) {
  ++controls_.counts.num_launches;
  return Append(form, std::move(launch), false);
}

CUresult GatedQueue::Seal() {
  Sweep();
  if (is_sealed()) return CUDA_SUCCESS;
  GatedForm form;
  form.function = controls_.marker.function;
  form.hidden_offset = controls_.marker.hidden_offset;
  PendingLaunch launch;
  launch.shape.grid = launch.shape.block = {1, 1, 1};
  const MarkerParameters parameters{word(), num_markers_ + 1};
  launch.parameters.Assign(std::as_bytes(std::span(&parameters, 1)));
  if (const CUresult r = Append(form, std::move(launch), true); r != CUDA_SUCCESS) return r;
  ++num_markers_;
  ++controls_.counts.num_markers;
  return driver_.cuStreamWaitValue32_v2(stream_, word(), num_markers_, CU_STREAM_WAIT_VALUE_GEQ);
}

CUresult GatedQueue::Renumber() {
  CHECK(log_.empty() && !is_stopped_);
  next_ = promised_ = start_ = 0;
  if (const CUresult r = controls_.Store(place_, 0); r != CUDA_SUCCESS) return r;
  if (const CUresult r = controls_.Store(place_ + offsetof(device::GateRecord, start), 0); r != CUDA_SUCCESS) return r;
  return controls_.Settle();
}

void GatedQueue::Sweep() {
  if (is_stopped_) return;
  size_t num_done = 0;
  for (size_t i = 0; i < log_.size(); ++i) {
    if (!log_[i].ended.exists()) continue;
    if (!log_[i].ended.HasEnded()) break;
    num_done = i + 1;
  }
  Forget(num_done);
}

CUresult GatedQueue::MarkLast() {
  num_unmarked_ = 0;
  if (log_.empty() || log_.back().ended.exists()) return CUDA_SUCCESS;
  return controls_.completions.Put(stream_, &log_.back().ended);
}

CUresult GatedQueue::Stop() {
  if (is_stopped_) return CUDA_SUCCESS;
  // First of all: who waits for the GPU waits for this. From here on that a launch has ended does not mean that it ran.
  const CUresult result = controls_.Store(place_ + offsetof(device::GateRecord, stopped), epoch_ + 1);
  if (result != CUDA_SUCCESS) return result;
  is_stopped_ = true;
  watermark_.reset();
  if (log_.empty()) return CUDA_SUCCESS;
  ++controls_.counts.num_stops;
  return MarkLast();
}

CUresult GatedQueue::Reopen(uint32_t start) {
  CUresult result = controls_.Store(place_ + offsetof(device::GateRecord, start), start);
  if (result == CUDA_SUCCESS) result = controls_.Store(place_ + offsetof(device::GateRecord, epoch), epoch_ + 1);
  // What is launched now must find both.
  if (result == CUDA_SUCCESS) result = controls_.Settle();
  if (result != CUDA_SUCCESS) return result;
  ++epoch_;
  start_ = start;
  ++controls_.counts.num_reopened;
  is_stopped_ = false;
  return CUDA_SUCCESS;
}

// A block that had looked before the stop may raise it afterwards, and run; the marker behind it may, too, and let the
// next batch begin. So it counts only if it was read once more after the batch that it points to has left.
CUresult GatedQueue::ReadWatermark() {
  std::optional<uint32_t> before;
  while (!watermark_) {
    device::GateRecord record{};
    if (const CUresult r = controls_.Read(place_, &record); r != CUDA_SUCCESS) return r;
    const size_t num_reached = NumReached(record.watermark);
    if (num_reached == 0 || before == record.watermark) {
      watermark_ = record.watermark;
      break;
    }
    if (const CUresult r = log_[num_reached - 1].ended.State(); r != CUDA_SUCCESS) return r;
    before = record.watermark;
  }
  return CUDA_SUCCESS;
}

size_t GatedQueue::NumReached(uint32_t watermark) const {
  size_t num_reached = 0;
  while (num_reached < log_.size()) {
    const Entry& entry = log_[num_reached++];
    // This marker has left. All before it run or have run.
    if (entry.is_marker && entry.end > watermark) break;
  }
  return num_reached;
}

CUresult GatedQueue::HasLeft() {
  if (log_.empty()) return CUDA_SUCCESS;
  // Of one batch the end is the end, whatever of it ran: then nothing need be read, which would take its time.
  const bool is_one_batch = num_logged_markers_ == (log_.back().is_marker ? 1 : 0);
  return is_one_batch ? log_.back().ended.State() : ReadWatermark();
}

CUresult GatedQueue::Read(Standing* standing) {
  *standing = {};
  if (const CUresult r = ReadWatermark(); r != CUDA_SUCCESS) return r;
  const size_t num_reached = NumReached(*watermark_);
  const bool has_run = num_reached != 0 && *watermark_ > std::max(log_.front().base, start_);
  for (size_t i = 0; i < num_reached; ++i) {
    const Entry& entry = log_[i];
    if (entry.is_marker) continue;
    if (has_run && entry.base < *watermark_) standing->last = &entry.launch;
    if (entry.end <= *watermark_) continue;
    ++standing->num_launches;
    standing->num_blocks += entry.end - std::max(entry.base, *watermark_);
  }
  return CUDA_SUCCESS;
}

CUresult GatedQueue::TryResume() {
  if (const CUresult r = ReadWatermark(); r != CUDA_SUCCESS) return r;
  const size_t num_reached = NumReached(*watermark_);
  uint32_t end = next_;
  if (num_reached != 0) {
    // Some may have been launched since it was read. They leave, and then that has to be over, too.
    const Entry& last = log_[num_reached - 1];
    if (const CUresult r = last.ended.State(); r != CUDA_SUCCESS) return r;
    end = last.end;
  }
  // A chunk may have raised the watermark beyond all that there was: what is launched later has not run.
  const uint32_t start = std::min(*watermark_, end);
  if (const CUresult r = Reopen(start); r != CUDA_SUCCESS) return r;
  size_t num_done = 0;
  while (num_done < num_reached && log_[num_done].end <= start) ++num_done;
  Forget(num_done);
  return num_done < num_reached ? RunAgain(num_reached - num_done, start) : CUDA_SUCCESS;
}

CUresult GatedQueue::RunAgain(size_t num_entries, uint32_t start) {
  Entry& last = log_[num_entries - 1];
  // Its stream waits for a marker that was not reached. Without one nothing is there that these must not come behind,
  // and they stay: launches that wait in two streams make all kernels start later (docs/scheduling.md#refreshing).
  const CUstream stream = last.is_marker ? resume_ : stream_;
  for (size_t i = 0; i < num_entries; ++i) {
    Entry& entry = log_[i];
    entry.ended.Clear();  // what it says is that the entry has left
    if (const CUresult r = Run(entry, stream, true); r != CUDA_SUCCESS) return r;
    if (entry.is_marker) continue;
    ++controls_.counts.num_relaunches;
    if (entry.base < start) ++controls_.counts.num_cut;
  }
  return controls_.completions.Put(stream, &last.ended);
}

CUresult GatedQueue::TryAbandon() {
  if (!log_.empty()) {
    if (const CUresult r = controls_.Store(word(), num_markers_); r != CUDA_SUCCESS) return r;
    if (const CUresult r = log_.back().ended.State(); r != CUDA_SUCCESS) return r;
    ++controls_.counts.num_abandoned;
  }
  Forget(log_.size());
  return Reopen(next_);
}

}  // namespace tally::server
