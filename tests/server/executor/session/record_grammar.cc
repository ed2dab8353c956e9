#include "tests/server/executor/session/record_grammar.h"

#include <cuda.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "proto/driver/generated/wire_ops.h"

namespace tally::fakes {
namespace {

using shm::Op;

std::vector<std::string> Words(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

struct HandRow {
  Op op;
  const char* parts;
  const char* gives = "";
};

// As proto/shm/records_abi.h says. Not here: what waits for a callback or makes the client's answer part of the order
// (kLaunchHostFunction, kAwaitCallback, host nodes), images, which hostile_client_test.cc writes, and names of sharing.
const HandRow kHandRows[] = {
    {Op::kDescribeDevices, ""},
    {Op::kOpenContext, "half device flags4 zero"},
    {Op::kCloseContext, "half flags4"},
    {Op::kSynchronizeContext, ""},
    {Op::kFetchOutput, ""},
    {Op::kNoteRefusal, "half zero"},
    {Op::kKernelFunction, "kernel zero zero"},
    {Op::kListKernels, "module zero half"},
    {Op::kLibraryModule, "library zero zero", "module"},
    {Op::kUnloadModule, "module"},
    {Op::kReadLinked, "link word size"},
    {Op::kLinkDestroy, "link"},
    {Op::kLaunch, "function stream one one one one one one half4 param4 zero zero bytes:24"},
    {Op::kLaunch,
     "function stream one one one one one one half4 param4 declared boxes2 bytes:24 address size few size address size "
     "few word"},
    {Op::kAllocate, "size zero8 flags4 zero", "address"},
    {Op::kFree, "address"},
    {Op::kAllocateAsync, "size mempool? stream", "address"},
    {Op::kFreeAsync, "address stream"},
    {Op::kFreeHost, "address"},
    {Op::kMemoryAmount, ""},
    {Op::kCopy, "address address size stream zero zero"},
    {Op::kCopy, "word address size stream place zero"},
    {Op::kCopyBox,
     "address word4 word4 word4 size word4 zero zero address word4 word4 word4 size word4 zero zero size "
     "word4 word4 stream zero zero"},
    {Op::kFill, "address size size word4 stream half fill"},
    {Op::kCreateStream, "flags4 zero", "stream"},
    {Op::kDestroyStream, "stream"},
    {Op::kSynchronizeStream, "stream"},
    {Op::kCreateEvent, "newevent flags4 zero"},
    {Op::kSynchronizeEvent, "event"},
    {Op::kBeginCapture, "stream graph? flags4 zero zero zero"},
    {Op::kEndCapture, "stream", "graph"},
    {Op::kBeginTask, "stream one one zero zero address size few size address size few word"},
    {Op::kEndTask, "stream"},
    {Op::kCaptureState, "stream"},
    {Op::kUpdateCapture, "stream zero8 zero flags4 count2 zero nodes"},
    {Op::kAddKernelNode,
     "graph zero8 zero8 count2 zero nodes function stream one one one one one one half4 param4 zero zero bytes:24",
     "node"},
    {Op::kGetKernelNode, "node"},
    {Op::kAddCopyNode,
     "graph zero8 zero8 count2 zero nodes address word4 word4 word4 size word4 zero zero address word4 "
     "word4 word4 size word4 zero zero size word4 word4 stream zero zero",
     "node"},
    {Op::kAddFillNode, "graph zero8 zero8 count2 zero nodes address size size word4 stream half fill", "node"},
    {Op::kSetFillNode, "graph exec? node zero zero address size size word4 stream half fill"},
    {Op::kUpdateExec, "exec graph"},
    {Op::kReserveAddresses, "page zero8 zero8 zero8", "range"},
    {Op::kFreeAddresses, "range page"},
    {Op::kCreatePhysical, "pinned zero located device zero zero page zero8", "physical"},
    {Op::kReleasePhysical, "physical"},
    {Op::kMapPhysical, "range page zero8 physical zero8"},
    {Op::kUnmapPhysical, "range page"},
    {Op::kSetAccess, "range page device access"},
    {Op::kGetAccess, "range device zero"},
    {Op::kGranularity, "pinned zero located device zero zero flags"},
    {Op::kDescribePhysical, "physical"},
    {Op::kRetainPhysical, "range", "physical"},
    {Op::kOffer, "kind4 zero address"},
    {Op::kCloseShared, "address"},
    {Op::kEnablePeer, "device device"},
    {Op::kFence, ""},
    {Op::kInstantiate, "graph flags stream", "exec"},
    {Op::kGetCopyNode, "node"},
    {Op::kGetHostNode, "node"},
    {Op::kMemoryOperations, "stream one zero writevalue address word zero zero zero8 zero8 zero8"},
    {Op::kGetMemoryOperationsNode, "node"},
    {Op::kAddAllocationNode, "graph zero8 zero8 count2 zero nodes size zero8 zero8 device zero", "node"},
    {Op::kGetAllocationNode, "node"},
    {Op::kCreateConditional, "graph flags4 flags4", "conditional"},
    {Op::kAddConditionalNode, "graph zero8 zero8 count2 zero nodes conditional flags4 one", "node"},
    {Op::kCreateUserObject, "word one one", "userobject"},
    {Op::kCountUserObject, "userobject graph? one flags4 flags4 zero"},
    {Op::kGraphText, "graph zero8 flags4 zero"},
    {Op::kRecordContextEvent, "event"},
    {Op::kWaitContextEvent, "event"},
    {Op::kAddMovedGraphNode, "graph zero8 zero8 count2 zero nodes graph zero zero", "node"},
};

// Structs that cuda.h has and the table only calls `in`.
std::vector<std::string> PartsOfStruct(const std::string& symbol) {
  if (symbol == "cuArray3DCreate_v2" || symbol == "cuMipmappedArrayCreate") {
    return Words("size size zero8 format one zero zero");
  }
  if (symbol == "cuArrayCreate_v2") return Words("size size format one");
  if (symbol == "cuSurfObjectCreate") return Words("zero zero array");
  return {};
}

std::string KindOf(std::string word) {
  if (word == "graphnode") return "node";
  if (word == "graphexec") return "exec";
  return word == "streamq" ? "stream" : word;
}

// What the words of a row of the table mean for a request. False: with structs that this does not know.
bool ReadRow(const std::string& symbol, const std::vector<std::string>& words, RecordShape* shape) {
  bool is_first_out = true;
  if (std::find(words.begin(), words.end(), "count") != words.end()) shape->parts.push_back("capacity");
  for (const std::string& word : words) {
    const char mark = word.front();
    const bool is_array = word.ends_with("]");
    const std::string plain = word.substr(mark == '+' || mark == '=' || mark == '-',
                                          word.find_first_of("?[") - (mark == '+' || mark == '=' || mark == '-'));
    if (mark == '+' || mark == '=' || plain == "out") {
      if (is_array) {
        shape->parts.push_back("wanted");
      } else if (is_first_out && plain != "out") {
        shape->gives = KindOf(plain);
      }
      is_first_out = false;
    } else if (word == "count") {
      continue;
    } else if (plain == "in" || plain == "inout") {
      const std::vector<std::string> parts = PartsOfStruct(symbol);
      if (word == "in?[4]") {
        shape->parts.push_back("zero8");
      } else if (is_array || parts.empty()) {
        return false;
      } else {
        shape->parts.insert(shape->parts.end(), parts.begin(), parts.end());
        if (symbol == "cuSurfObjectCreate")
          shape->parts.push_back("zeros:" + std::to_string(sizeof(CUDA_RESOURCE_DESC) - 16));
      }
    } else if (is_array) {
      shape->parts.push_back(KindOf(plain) + "[]");
    } else if (plain == "v" || plain == "attr8") {
      shape->parts.push_back("flags");
    } else if (plain == "dev") {
      shape->parts.push_back("zero8");
    } else if (plain == "daddr") {
      shape->parts.push_back("address");
    } else if (plain == "str") {
      shape->parts.push_back("text");
    } else {
      shape->parts.push_back(KindOf(plain));
    }
  }
  // The number of an array's elements stands in a scalar of its own.
  for (size_t i = 0; i + 1 < shape->parts.size(); ++i) {
    if (shape->parts[i].ends_with("[]")) {
      for (size_t k = i + 1; k < shape->parts.size(); ++k)
        if (shape->parts[k] == "flags") shape->parts[k] = "count";
    }
  }
  return true;
}

// Word by word: gcc 12 warns of a single copy, whose size it cannot see.
Payload PayloadOf(const std::string& bytes) {
  Payload payload;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    payload.PutWord(word);
  }
  return payload;
}

}  // namespace

std::vector<RecordShape> AllShapes(const std::string& table_path) {
  std::vector<RecordShape> shapes;
  for (const HandRow& row : kHandRows) {
    shapes.push_back(
        {static_cast<uint16_t>(row.op), "Op " + std::to_string(static_cast<int>(row.op)), Words(row.parts), row.gives});
  }
  std::ifstream table(table_path);
  uint16_t op = shm::kFirstWireOp;
  for (std::string line; std::getline(table, line);) {
    std::vector<std::string> columns;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, '\t');) columns.push_back(cell);
    if (columns.size() < 3 || line.front() == '#' || !columns[2].ends_with("wire")) continue;
    RecordShape shape;
    shape.op = op++;
    shape.name = columns[0];
    if (shape.name.starts_with("cuStreamWaitValue")) continue;  // for ever, mostly
    if (ReadRow(columns[0], Words(columns.size() > 3 ? columns[3] : ""), &shape)) shapes.push_back(std::move(shape));
  }
  return shapes;
}

uint64_t RecordGrammar::Word(const std::string& part) {
  if (part == "word") return Below(4) == 0 ? random_() : Below(4096);
  if (part == "size") return (1 + Below(64)) * 8;
  if (part == "page") return uint64_t{2} << 20;
  if (part == "flags" || part == "flags4" || part == "kind4") return Below(3) == 0 ? Below(8) : Below(2);
  if (part == "half" || part == "half4") return Below(4);
  if (part == "fill") return uint64_t{1} << Below(3);
  if (part == "one" || part == "pinned" || part == "located") return 1;
  if (part == "access") return Below(2) * 2 + 1;
  if (part == "param4") return 24;
  if (part == "declared") return uint64_t{shm::kLaunchDeclared} << 16;  // behind no attributes
  if (part == "boxes2") return 1 | 1 << 16;                             // one that is read, one that is written
  if (part == "few") return Below(4);
  if (part == "capacity") return Below(8);
  if (part == "wanted") return Below(2);
  if (part == "place") return 1;
  if (part == "format") return CU_AD_FORMAT_FLOAT;
  if (part == "writevalue") return CU_STREAM_MEM_OP_WRITE_VALUE_64;
  if (part == "zero" || part == "zero8" || part == "device" || part == "word4") return 0;
  const bool is_optional = part.ends_with("?");
  const std::string kind = is_optional ? part.substr(0, part.size() - 1) : part;
  if (is_optional && Below(2) == 0) return 0;
  if (kind == "stream" && Below(3) == 0) return 1 + Below(2);
  if (kind == "newevent") {
    const uint64_t handle = shm::MakeHandle(shm::HandleKind::kEvent, 1, false, 100 + Below(64));
    known_["event"].push_back(handle);
    return handle;
  }
  const std::vector<uint64_t>& values = known_[kind];
  if (values.empty()) return Below(2) == 0 ? 0 : random_();
  // The newest most often: much of what is old has been destroyed.
  return Below(3) == 0 ? values[Below(values.size())] : values.back();
}

Payload RecordGrammar::Fill(const RecordShape& shape) {
  static const std::vector<std::string> kHalves = {"half",   "half4",  "flags4",     "kind4",  "zero",     "one",
                                                   "device", "param4", "place",      "pinned", "located",  "access",
                                                   "fill",   "format", "writevalue", "count2", "declared", "boxes2"};
  std::string bytes;
  uint64_t count = Below(3);
  const auto put = [&](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  for (const std::string& part : shape.parts) {
    if (part == "count2") {
      put(static_cast<uint32_t>(count));
    } else if (part == "nodes") {
      for (uint64_t i = 0; i < count; ++i) put(Word("node"));
    } else if (part == "count") {
      put(count);
    } else if (part.ends_with("[]")) {
      put(count);
      for (uint64_t i = 0; i < count; ++i) put(Word(part.substr(0, part.size() - 2)));
    } else if (part == "text") {
      put(uint64_t{8});
      put(random_());
    } else if (part.starts_with("bytes:") || part.starts_with("zeros:")) {
      size_t size = 0;
      std::from_chars(part.data() + 6, part.data() + part.size(), size);
      const size_t at = bytes.size();
      bytes.resize(at + (size + 7) / 8 * 8);
      for (size_t k = at; k + 8 <= bytes.size() && part.front() == 'b'; k += 8)
        bytes[k] = static_cast<char>(Below(2) == 0 ? 0 : Below(65));
    } else if (std::find(kHalves.begin(), kHalves.end(), part) != kHalves.end()) {
      put(static_cast<uint32_t>(Word(part)));
    } else {
      put(Word(part));
    }
  }
  return PayloadOf(bytes);
}

Payload RecordGrammar::Spoil(const Payload& payload) {
  std::string bytes(reinterpret_cast<const char*>(payload.bytes().data()), payload.bytes().size());
  for (uint64_t i = 0; i <= Below(3) && !bytes.empty(); ++i) {
    const uint64_t word = Below(3) == 0   ? random_()
                          : Below(2) == 0 ? uint64_t{1} << Below(64)
                                          : UINT64_MAX >> Below(64);
    const size_t at = Below((bytes.size() + 7) / 8) * 8, size = Below(2) == 0 ? 8 : 4;
    std::copy_n(reinterpret_cast<const char*>(&word), std::min(size, bytes.size() - at), bytes.begin() + at);
  }
  if (Below(6) == 0) bytes.resize(Below(bytes.size() + 1) / 8 * 8);
  if (Below(6) == 0) bytes.resize(bytes.size() + 8 * Below(16));
  return PayloadOf(bytes);
}

void RecordGrammar::Learn(const RecordShape& shape, const Answer& answer) {
  if (!shape.gives.empty() && answer.result == 0 && answer.payload.size() >= 8)
    Know(shape.gives, answer.Get<uint64_t>());
}

}  // namespace tally::fakes
