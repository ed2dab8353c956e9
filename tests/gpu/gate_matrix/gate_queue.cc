#include "tests/gpu/gate_matrix/gate_queue.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tally::gate_matrix {
namespace {
constexpr auto kPatience = std::chrono::seconds(10);
}  // namespace

uint32_t Launch::num_units() const {
  const uint32_t blocks = config.gridDimX * config.gridDimY * config.gridDimZ;
  return cluster_blocks == 0 ? blocks : blocks / cluster_blocks;
}

void Submit(const Launch& launch, CUstream stream, const device::GateParameters* gate) {
  CUlaunchConfig config = launch.config;
  std::vector<CUlaunchAttribute> attributes = launch.attributes;
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  std::vector<void*> pointers;
  for (const std::string& parameter : launch.parameters) pointers.push_back(const_cast<char*>(parameter.data()));
  if (gate != nullptr) pointers.push_back(const_cast<device::GateParameters*>(gate));
  if (!launch.uses_parameter_buffer) {
    CHECK_DRIVER(cuLaunchKernelEx(&config, launch.function, pointers.data(), nullptr));
    return;
  }
  std::vector<std::byte> buffer;
  for (size_t i = 0; i < pointers.size(); ++i) {
    size_t offset = 0, bytes = 0;
    CHECK_DRIVER(cuFuncGetParamInfo(launch.function, i, &offset, &bytes));
    buffer.resize(offset + bytes);
    std::memcpy(&buffer[offset], pointers[i], bytes);
  }
  size_t size = buffer.size();
  std::array<void*, 5> extra = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                                CU_LAUNCH_PARAM_END};
  CHECK_DRIVER(cuLaunchKernelEx(&config, launch.function, nullptr, extra.data()));
}

device::GateParameters GateParametersFor(const Launch& launch, CUdeviceptr record, uint32_t base, uint32_t chunk) {
  uint64_t flags = device::kGateOn;
  if (launch.cluster_blocks != 0) flags |= device::kGateClusters;
  if (launch.config.gridDimY != 1 || launch.config.gridDimZ != 1) flags |= device::kGateManyAxes;
  return {record | flags, base, chunk};
}

GateQueue::GateQueue(CUstream stream, CUstream control) : stream_(stream), control_(control) {
  CHECK_DRIVER(cuMemAlloc_v2(&record_, device::kGateRecordAlignment));
  if (record_ % device::kGateRecordAlignment != 0) Die("the record is not aligned");
  void* pinned = nullptr;
  CHECK_DRIVER(cuMemHostAlloc(&pinned, 64, 0));
  seen_ = static_cast<device::GateRecord*>(pinned);
  stop_value_ = reinterpret_cast<uint32_t*>(seen_ + 1);
  Reset(0);
}

void GateQueue::Write(const device::GateRecord& record) {
  *seen_ = record;
  CHECK_DRIVER(cuMemcpyHtoDAsync_v2(record_, seen_, sizeof(record), control_));
  CHECK_DRIVER(cuStreamSynchronize(control_));
}

void GateQueue::Reset(uint32_t first) {
  log_.clear();
  first_ = total_ = first;
  epoch_ = 0;
  is_stopped_ = false;
  Write({first, 0, first, 0});
}

void GateQueue::Add(Launch launch, uint32_t chunk) {
  const device::GateParameters gate = GateParametersFor(launch, record_, total_, chunk);
  Submit(launch, stream_, &gate);
  const uint32_t units = launch.num_units();
  log_.push_back({std::move(launch), total_, units, chunk});
  total_ += units;
}

void GateQueue::Stop() {
  *stop_value_ = epoch_ + 1;
  is_stopped_ = true;
  CHECK_DRIVER(cuMemcpyHtoDAsync_v2(record_ + offsetof(device::GateRecord, stopped), stop_value_, 4, control_));
}

void GateQueue::Settle() {
  CHECK_DRIVER(cuStreamSynchronize(control_));
  const auto deadline = Clock::now() + kPatience;
  for (CUresult result; (result = driver.cuStreamQuery(stream_)) != CUDA_SUCCESS;) {
    if (result != CUDA_ERROR_NOT_READY) Check(result, "cuStreamQuery");
    if (Clock::now() > deadline) Die("the stream is not idle after ten seconds");
  }
  CHECK_DRIVER(cuMemcpyDtoHAsync_v2(seen_, record_, sizeof(*seen_), control_));
  CHECK_DRIVER(cuStreamSynchronize(control_));
}

GateQueue::Progress GateQueue::progress() const {
  const uint32_t reached = std::clamp(seen_->watermark, first_, total_);
  Progress progress = {reached - first_, total_ - first_, false};
  for (const Logged& logged : log_) progress.is_inside |= logged.base < reached && reached < logged.base + logged.units;
  return progress;
}

bool GateQueue::Reopen() {
  if (!is_stopped_) Die("a queue that is not stopped cannot be reopened");
  // A chunk may reach beyond the last launch: what is launched later has not run.
  device::GateRecord record = *seen_;
  record.start = std::min(record.watermark, total_);
  record.epoch = record.stopped = ++epoch_;
  Write(record);
  is_stopped_ = false;
  return record.start < total_;
}

void GateQueue::Relaunch() {
  for (const Logged& logged : log_) {
    if (logged.base + logged.units <= seen_->start) continue;
    const device::GateParameters gate = GateParametersFor(logged.launch, record_, logged.base, logged.chunk);
    Submit(logged.launch, stream_, &gate);
  }
}

}  // namespace tally::gate_matrix
