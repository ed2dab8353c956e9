// JIT options of a client, with log buffers of ours in place of the caller's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "server/executor/session/wire_codec.h"

namespace tally::server {

class JitOptions {
 public:
  // Takes `count` JitOption records. False: too many, or one that carries a pointer or that we do not know.
  bool Read(WireReader& in, uint32_t count);
  // Log buffers for what the caller offered, bounded; they must outlive the driver's use of values().
  void AddLogs(uint32_t info_bytes, uint32_t error_bytes, std::vector<char>* info_log, std::vector<char>* error_log);

  // Copies of what was read, without the logs.
  void CopyNumbers(std::vector<CUjit_option>* numbers, std::vector<void*>* number_values) const;

  unsigned int count() const { return static_cast<unsigned int>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }
  // What the driver wrote, once the call is over.
  uint32_t InfoBytes(const std::vector<char>& info_log) const { return LogBytes(info_size_at_, info_log); }
  uint32_t ErrorBytes(const std::vector<char>& error_log) const { return LogBytes(error_size_at_, error_log); }

 private:
  void AddLog(uint32_t wanted, CUjit_option buffer, CUjit_option size, std::vector<char>* log, int* size_at);
  static uint32_t LogBytes(int size_at, const std::vector<char>& log);

  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  size_t num_numbers_ = 0;  // the logs follow
  int info_size_at_ = -1;
  int error_size_at_ = -1;
};

// LoadedImage and the two logs, as every reply with logs ends.
void PutLoadedImage(WireWriter& out, uint64_t handle, const JitOptions& options, const std::vector<char>& info_log,
                    const std::vector<char>& error_log);

}  // namespace tally::server
