// Read runtime_handshake.h first: what this is, and the licence question.
#include "client-shim/entry/runtime_handshake.h"

#include <array>
#include <cstring>

namespace tally::client_shim {
namespace {

constexpr size_t kBlockBytes = 16;

// The substitution table of MD2 (RFC 1319, section 3.2): a permutation of 0..255 made from the digits of pi.
constexpr std::array<uint8_t, 256> kPiTable = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,   243, 192, 199,
    115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212, 224, 22,  103, 66,  111, 24,
    138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160, 251, 245, 142, 187, 47,  238, 122, 169, 104,
    121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,
    53,  62,  204, 231, 191, 247, 151, 3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,
    170, 198, 79,  184, 56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,
    100, 113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246, 28,  70,
    97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249, 206, 186, 197, 234, 38,
    44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,  106, 220, 55,  200, 108, 193,
    171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254,
    59,  0,   29,  57,  242, 239, 183, 14,  102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,
    80,  180, 143, 237, 31,  26,  219, 153, 141, 51,  159, 17,  131, 20};

constexpr std::array<uint8_t, kBlockBytes> kKey = {0x14, 0x6A, 0xDD, 0xAE, 0x53, 0xA9, 0xA7, 0x52,
                                                   0xAA, 0x08, 0x41, 0x36, 0x0B, 0xF5, 0x5A, 0x9F};

// The state the runtime has: 48 bytes of working block, 16 of checksum, the index into the block and the checksum's
// last byte. Between the two passes only the first 16 and the last 18 bytes are cleared.
class Digest {
 public:
  void Add(const void* bytes, size_t size) {
    const auto* next = static_cast<const uint8_t*>(bytes);
    for (size_t i = 0; i < size; ++i) AddByte(next[i]);
  }
  template <typename T>
  void AddValue(const T& value) {
    Add(&value, sizeof(value));
  }
  void AddKey(uint8_t mask) {
    for (const uint8_t byte : kKey) AddByte(byte ^ mask);
  }
  std::array<uint8_t, kBlockBytes> Finish() {
    const auto padding = static_cast<uint8_t>(kBlockBytes - index_);
    for (int i = 0; i < padding; ++i) AddByte(padding);
    const std::array<uint8_t, kBlockBytes> checksum = checksum_;
    Add(checksum.data(), checksum.size());
    std::array<uint8_t, kBlockBytes> result;
    std::memcpy(result.data(), block_.data(), result.size());
    return result;
  }
  void ClearBetweenPasses() {
    std::memset(block_.data(), 0, kBlockBytes);
    checksum_.fill(0);
    index_ = 0;
    last_ = 0;
  }

 private:
  void AddByte(uint8_t byte) {
    block_[kBlockBytes + index_] = byte;
    block_[2 * kBlockBytes + index_] = block_[index_] ^ byte;
    checksum_[index_] ^= kPiTable[byte ^ last_];
    last_ = checksum_[index_];
    if (++index_ < kBlockBytes) return;
    index_ = 0;
    uint8_t running = 0;
    for (uint8_t round = 0; round < 18; ++round) {
      for (uint8_t& value : block_) running = value ^= kPiTable[running];
      running = static_cast<uint8_t>(running + round);
    }
  }

  std::array<uint8_t, 3 * kBlockBytes> block_{};
  std::array<uint8_t, kBlockBytes> checksum_{};
  uint8_t index_ = 0;
  uint8_t last_ = 0;
};

}  // namespace

HandshakeAnswer AnswerHandshake(uint32_t version, const HandshakeInput& input) {
  if (version % 10 == 0) return {{0x3341181C03CB675C, 0x8ED383AA1F4CD1E8}};
  if (version % 10 == 1) return {{0x1841181C03CB675C, 0x8ED383AA1F4CD1E8}};

  Digest digest;
  digest.AddKey(0x36);
  digest.AddValue(input.driver_version);
  digest.AddValue(version);
  digest.AddValue(input.process_id);
  digest.AddValue(input.thread_id);
  digest.AddValue(input.runtime_table_address);
  digest.AddValue(input.check_table_address);
  digest.AddValue(input.check_function_address);
  digest.AddValue(input.unix_seconds);
  for (const HandshakeInput::Device& device : input.devices) {
    digest.Add(device.uuid, sizeof(device.uuid));
    digest.AddValue(device.pci_domain);
    digest.AddValue(device.pci_bus);
    digest.AddValue(device.pci_device);
  }
  const auto inner = digest.Finish();
  digest.ClearBetweenPasses();
  digest.AddKey(0x5C);
  digest.Add(inner.data(), inner.size());
  const auto outer = digest.Finish();
  HandshakeAnswer answer;
  std::memcpy(answer.word, outer.data(), sizeof(answer.word));
  return answer;
}

}  // namespace tally::client_shim
