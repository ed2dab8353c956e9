// A mirror's own side: takes commands from its page, one after the other, and carries them out on its GPU.
#pragma once

#include <cuda.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mapped_region.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/mirror/mirror_command.h"
#include "server/executor/mirror/mirror_memory.h"

namespace tally::server {

// One thread, which owns the context. Home is not trusted (mirror_abi.h): whatever stands in the page, this process
// answers with `result` or `error` and stays as it is.
class MirrorService {
 public:
  // How long this process's contexts run at a time beside others'; zero: as the driver has it.
  using WantTimeSlice = std::function<void(std::chrono::microseconds)>;
  // Checks page and socket, makes the context of device `ordinal`, says kReady.
  static Result<std::unique_ptr<MirrorService>> Open(const DriverTable& driver, int ordinal, UniqueFd page,
                                                     UniqueFd socket, WantTimeSlice want_time_slice);
  ~MirrorService();

  // Until home closes the socket.
  void Run();

 private:
  MirrorService(const DriverTable& driver, int ordinal, MappedRegion region, UniqueFd socket,
                WantTimeSlice want_time_slice)
      : driver_(driver),
        want_time_slice_(std::move(want_time_slice)),
        memory_(driver, ordinal),
        region_(std::move(region)),
        socket_(std::move(socket)) {}
  Status OpenDevice(int ordinal);
  shm::MirrorPage& page() { return *reinterpret_cast<shm::MirrorPage*>(region_.data()); }

  void Serve(uint64_t position);
  CUresult CarryOut(const MirrorOrder& order, uint64_t position);
  CUresult CarryOutMapping(const MirrorOrder& order, uint64_t position);
  CUresult CarryOutCode(const MirrorOrder& order, uint64_t position);
  CUresult CarryOutSetting(const shm::MirrorCommand& command);
  CUresult CarryOutWork(const MirrorOrder& order);
  CUresult LoadImage(const shm::MirrorCommand& command, uint64_t position);
  CUresult UnloadImage(uint32_t image);
  CUresult FindFunction(const MirrorOrder& order);
  CUresult BeginTask(uint32_t task);
  CUresult EndTask();
  // Part of the task that is being described, so not to be carried out.
  bool IsRecorded(shm::MirrorCommandKind kind) const {
    return recording_ && (kind == shm::MirrorCommandKind::kLaunch || kind == shm::MirrorCommandKind::kFill);
  }
  CUresult Launch(const MirrorOrder& order, CUstream stream);
  CUresult Copy(const shm::MirrorCommand& command);
  CUresult Fill(const shm::MirrorCommand& command, CUstream stream);
  // The descriptor that home sent for that command. Invalid after BreakWith().
  UniqueFd TakeParcel(uint64_t position);
  bool SendParcel(uint64_t position, int fd);
  // Whether work is still running; notices faults.
  bool LookAtStreams();
  void BreakWith(CUresult error, const std::string& why);

  struct Function {
    CUfunction function = nullptr;
    uint32_t image = 0;
    uint32_t shared_bytes = 0;  // dynamic ones that were asked for
  };

  const DriverTable& driver_;
  const WantTimeSlice want_time_slice_;
  CUcontext context_ = nullptr;
  CUdevice device_ = 0;
  MirrorMemory memory_;
  MappedRegion region_;
  UniqueFd socket_;
  CUdeviceptr page_on_device_ = 0;
  std::array<CUstream, shm::kMirrorStreams> streams_{};
  std::map<uint32_t, CUmodule> images_;
  std::map<uint32_t, Function> functions_;
  std::map<uint32_t, CUgraphExec> tasks_;
  struct Recording {
    uint32_t task = 0;
    CUresult result = CUDA_SUCCESS;  // of what failed first
  };
  std::optional<Recording> recording_;  // from kBeginTask to kEndTask
  CUstream recording_stream_ = nullptr;
  bool is_broken_ = false;  // not read from the page: what stands there may be taken back by others
};

}  // namespace tally::server
