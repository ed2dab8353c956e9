// What the file of a program or library says before it runs: its loader, the glibc that it needs, the device code in
// it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "images/fat_container.h"

namespace tally::images {

struct DeviceCode {
  FatEntryKind kind = FatEntryKind::kCubin;
  uint32_t arch = 0;  // 90 for sm_90 and compute_90
  char suffix = 0;    // 'a', 'f' or none
  auto operator<=>(const DeviceCode&) const = default;
};

struct GlibcVersion {
  uint32_t major = 0;
  uint32_t minor = 0;
  auto operator<=>(const GlibcVersion&) const = default;
};

struct ProgramFile {
  std::string loader;        // its interpreter; empty: it has none
  bool is_dynamic = false;   // says which libraries it needs
  GlibcVersion needs_glibc;  // the highest of its version needs; 0.0: none
  // Each kind and architecture once, in that order. A program's libraries have theirs in their own files.
  std::vector<DeviceCode> device_code;

  // A program that no loader starts, so that nothing can be loaded in place of the driver.
  bool is_static_program() const { return loader.empty() && !is_dynamic; }
};

// "GLIBC_2.28"; 0.0 for every other text, GLIBC_PRIVATE too.
GlibcVersion ParseGlibcVersion(std::string_view text);

// kInvalidArgument: no 64-bit ELF file for x86; kDataLoss: inconsistent. Nothing outside of `bytes` is read, whatever
// they say.
Result<ProgramFile> ReadProgramFile(std::span<const std::byte> bytes);

}  // namespace tally::images
