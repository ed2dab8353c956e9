#include "server/executor/session/jit_options.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "proto/shm/records_code_abi.h"

namespace tally::server {
namespace {

constexpr uint32_t kMaxOptions = 64;
// Two logs fit into one reply.
constexpr uint32_t kMaxLogBytes = 24 * 1024;

// Options whose value is a number. Everything else is a pointer into the caller.
bool IsNumber(uint32_t option) {
  constexpr std::array kNumbers = {
      CU_JIT_MAX_REGISTERS,
      CU_JIT_THREADS_PER_BLOCK,
      CU_JIT_OPTIMIZATION_LEVEL,
      CU_JIT_TARGET_FROM_CUCONTEXT,
      CU_JIT_TARGET,
      CU_JIT_FALLBACK_STRATEGY,
      CU_JIT_GENERATE_DEBUG_INFO,
      CU_JIT_LOG_VERBOSE,
      CU_JIT_GENERATE_LINE_INFO,
      CU_JIT_CACHE_MODE,
      CU_JIT_POSITION_INDEPENDENT_CODE,
      CU_JIT_MIN_CTA_PER_SM,
      CU_JIT_MAX_THREADS_PER_BLOCK,
      CU_JIT_OVERRIDE_DIRECTIVE_VALUES,
  };
  return std::any_of(kNumbers.begin(), kNumbers.end(),
                     [&](CUjit_option known) { return static_cast<uint32_t>(known) == option; });
}

}  // namespace

bool JitOptions::Read(WireReader& in, uint32_t count) {
  if (count > kMaxOptions) return false;
  for (uint32_t i = 0; i < count; ++i) {
    shm::JitOption option{};
    in.TakeStruct(&option);
    if (option.option == CU_JIT_WALL_TIME) continue;  // an output that nobody reads
    if (!IsNumber(option.option)) return false;
    options_.push_back(static_cast<CUjit_option>(option.option));
    values_.push_back(reinterpret_cast<void*>(option.value));
  }
  num_numbers_ = options_.size();
  return in.ok();
}

void JitOptions::CopyNumbers(std::vector<CUjit_option>* numbers, std::vector<void*>* number_values) const {
  numbers->assign(options_.begin(), options_.begin() + static_cast<ptrdiff_t>(num_numbers_));
  number_values->assign(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(num_numbers_));
}

void JitOptions::AddLogs(uint32_t info_bytes, uint32_t error_bytes, std::vector<char>* info_log,
                         std::vector<char>* error_log) {
  AddLog(info_bytes, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_log, &info_size_at_);
  AddLog(error_bytes, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error_log, &error_size_at_);
}

void JitOptions::AddLog(uint32_t wanted, CUjit_option buffer, CUjit_option size, std::vector<char>* log, int* size_at) {
  if (wanted == 0) return;
  log->assign(std::min(wanted, kMaxLogBytes), '\0');
  options_.push_back(buffer);
  values_.push_back(log->data());
  options_.push_back(size);
  *size_at = static_cast<int>(values_.size());
  values_.push_back(reinterpret_cast<void*>(static_cast<uintptr_t>(log->size())));
}

uint32_t JitOptions::LogBytes(int size_at, const std::vector<char>& log) {
  if (size_at < 0 || log.empty()) return 0;
  return static_cast<uint32_t>(::strnlen(log.data(), log.size()));
}

void PutLoadedImage(WireWriter& out, uint64_t handle, const JitOptions& options, const std::vector<char>& info_log,
                    const std::vector<char>& error_log) {
  const shm::LoadedImage head{handle, options.InfoBytes(info_log), options.ErrorBytes(error_log)};
  out.PutStruct(head);
  if (head.info_log_bytes != 0) out.PutBytes(std::as_bytes(std::span(info_log).first(head.info_log_bytes)));
  if (head.error_log_bytes != 0) out.PutBytes(std::as_bytes(std::span(error_log).first(head.error_log_bytes)));
}

}  // namespace tally::server
