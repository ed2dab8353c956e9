// Sends device code to the executor: the program hands over a bare pointer, the executor gets the bytes, in pieces.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client-shim/transport/channel.h"
#include "proto/shm/operations_abi.h"
#include "proto/shm/records_code_abi.h"

namespace tally::client_shim {

// The options of a compilation, split into those that travel and the caller's log buffers.
class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE for missing arrays, CUDA_ERROR_NOT_SUPPORTED for options that hold pointers we cannot
  // send.
  CUresult Parse(unsigned int count, CUjit_option* options, void** values);

  std::span<const shm::JitOption> sent() const { return sent_; }
  uint32_t info_log_bytes() const { return info_.capacity; }
  uint32_t error_log_bytes() const { return error_.capacity; }
  // Copies the logs that follow `logs_offset` in the reply to the caller's buffers and updates the caller's size
  // options.
  void ReturnLogs(const Reply& reply, size_t logs_offset, uint32_t info_bytes, uint32_t error_bytes) const;

 private:
  struct Log {
    char* buffer = nullptr;
    uint32_t capacity = 0;
    void** size_value = nullptr;
  };
  static void Fill(const Log& log, const Reply& reply, size_t offset, uint32_t size);

  std::vector<shm::JitOption> sent_;
  Log info_;
  Log error_;
};

// Bytes of one image on their way, with what kind they are.
struct OutgoingImage {
  // One container, cubin or text: pieces that are sent one behind the other.
  struct Part {
    Part(const void* bytes, size_t size_bytes) : pieces{{static_cast<const std::byte*>(bytes), size_bytes}} {}
    std::vector<std::span<const std::byte>> pieces;
    std::vector<std::byte> header;  // the first piece, if it is not the program's
    uint64_t size_bytes() const;
    // Leaves out what no device of this process can use.
    void DropUnusable(std::span<const uint32_t> capabilities);
  };
  std::vector<Part> parts;  // each padded to 8 when there are several
  shm::ImageFormat format = shm::ImageFormat::kPtx;
  uint32_t wrapper_version = 0;
  uint32_t num_prelinked = 0;
  // Owns the bytes if they are not the program's: of an image read from a file, or made here. Also when this is moved.
  std::vector<std::byte> own_bytes;
  std::string path;  // of the file
};

// Finds out what is at `pointer`. CUDA_ERROR_INVALID_IMAGE when it is no device code.
CUresult DescribeImage(const void* pointer, OutgoingImage* image);
// Reads a file into `image`. CUDA_ERROR_FILE_NOT_FOUND.
CUresult ReadImageFile(const char* path, OutgoingImage* image);
// An image of known size (cuLinkAddData).
OutgoingImage ImageOfBytes(const void* bytes, size_t size_bytes);

// Sends the bytes; `*image_id` names them in the record that loads them.
CUresult SendImage(Channel* channel, const OutgoingImage& image, uint32_t* image_id);

// Sends and loads: op is kLoadModule or kLoadLibrary. Of fat binaries only what a device of this process can use
// travels (docs/decisions/006-slim-images.md); with a cubin goes the PTX that it was made from, if that is known
// (origins/pairing.h).
CUresult LoadImage(Channel* channel, shm::Op op, OutgoingImage image, const JitOptions& options, uint64_t* handle);

}  // namespace tally::client_shim
