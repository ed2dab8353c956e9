// What every program of this folder shares: results that are compared with a host reference, one checksum, one last
// line.
//
// A program is two functions that add the same named sections of values to a Results object:
//   Reference(Results&)  computes them on the host, without touching CUDA;
//   Device(Results&)     computes them with CUDA.
// RunProgram runs both, compares section by section, and prints as the last line of stdout
//   checksum: <16 hex digits> OK        exit status 0, or
//   FAILED: <reason>                    exit status 1,
// with a line for every section that differs before it: a machine on which something does is not always at hand.
// With --reference only the host's half runs, so the expected checksum is known on a machine without a GPU
// (expected_checksums.txt). The checksum covers values only: no time, no address, nothing that depends on the machine.
#pragma once

#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace check {

[[noreturn]] inline void Fail(const char* format, ...) {
  fflush(stdout);
  printf("FAILED: ");
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  fflush(stdout);
  _Exit(1);
}

// FNV-1a, 64 bits.
class Checksum {
 public:
  void Add(const void* bytes, size_t num_bytes) {
    const unsigned char* position = static_cast<const unsigned char*>(bytes);
    for (size_t i = 0; i < num_bytes; ++i) value_ = (value_ ^ position[i]) * 0x100000001b3ull;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

class Results {
 public:
  template <class T>
  void Add(const char* name, const T* values, size_t count) {
    static_assert(std::is_trivially_copyable<T>::value, "results are compared as bytes");
    const char* bytes = reinterpret_cast<const char*>(values);
    sections_.push_back({name, sizeof(T), std::string(bytes, bytes + count * sizeof(T)), false});
  }
  template <class T>
  void Add(const char* name, const std::vector<T>& values) {
    Add(name, values.data(), values.size());
  }
  template <class T>
  void AddValue(const char* name, T value) {
    Add(name, &value, 1);
  }
  void AddText(const char* name, const std::string& text) { sections_.push_back({name, 1, text, true}); }

  void AddAll(const Results& others) {
    sections_.insert(sections_.end(), others.sections_.begin(), others.sections_.end());
  }

  uint64_t ChecksumOfAll() const {
    Checksum checksum;
    for (const Section& section : sections_) checksum.Add(section.bytes.data(), section.bytes.size());
    return checksum.value();
  }

  // First element of each section: what a driver answered.
  void Print() const {
    for (const Section& section : sections_) {
      printf("%s: %s (%zu bytes)\n", section.name.c_str(), section.bytes.empty() ? "-" : Hex(section, 0).c_str(),
             section.bytes.size());
    }
  }

  // Prints how the sections that there are so far differ from those expected; returns how many do.
  size_t PrintDifferences(const Results& expected) const {
    size_t num_differing = 0;
    for (size_t i = 0; i < sections_.size() && i < expected.sections_.size(); ++i) {
      const Section& got = sections_[i];
      const Section& want = expected.sections_[i];
      if (got.name == want.name && got.bytes == want.bytes) continue;
      ++num_differing;
      if (got.name != want.name) {
        printf("section %zu is %s, expected %s\n", i, got.name.c_str(), want.name.c_str());
      } else if (want.is_text) {
        printf("%s is '%s', expected '%s'\n", got.name.c_str(), got.bytes.c_str(), want.bytes.c_str());
      } else if (got.bytes.size() != want.bytes.size()) {
        printf("%s has %zu bytes, expected %zu\n", got.name.c_str(), got.bytes.size(), want.bytes.size());
      } else {
        PrintElements(got, want);
      }
    }
    return num_differing;
  }

  // Does not return if anything differs.
  void FailUnlessEqual(const Results& expected) const {
    if (const size_t num_differing = PrintDifferences(expected); num_differing != 0) {
      Fail("%zu of %zu sections of results differ", num_differing, sections_.size());
    }
    if (sections_.size() != expected.sections_.size()) {
      Fail("%zu sections of results, expected %zu", sections_.size(), expected.sections_.size());
    }
  }

 private:
  struct Section {
    std::string name;
    size_t element_bytes;
    std::string bytes;
    bool is_text = false;
  };

  static void PrintElements(const Section& got, const Section& want) {
    constexpr size_t kMostShown = 6;
    const size_t count = want.bytes.size() / want.element_bytes;
    size_t num_differing = 0;
    for (size_t k = 0; k < count; ++k) {
      const size_t at = k * want.element_bytes;
      if (got.bytes.compare(at, want.element_bytes, want.bytes, at, want.element_bytes) == 0) continue;
      if (++num_differing > kMostShown) continue;
      printf("%s[%zu] is %s, expected %s\n", got.name.c_str(), k, Hex(got, k).c_str(), Hex(want, k).c_str());
    }
    if (num_differing > kMostShown) {
      printf("%s: %zu of %zu elements differ\n", got.name.c_str(), num_differing, count);
    }
  }

  // Most significant byte first, as a number would be written.
  static std::string Hex(const Section& section, size_t element) {
    std::string text = "0x";
    for (size_t i = section.element_bytes; i-- > 0;) {
      char digits[3];
      snprintf(digits, sizeof(digits), "%02x",
               static_cast<unsigned char>(section.bytes[element * section.element_bytes + i]));
      text += digits;
    }
    return text;
  }

  std::vector<Section> sections_;
};

// What there is when a call fails in the middle: its error is often the consequence of an answer before it.
struct Unfinished {
  const Results* results = nullptr;
  const Results* expected = nullptr;
};
inline Unfinished& UnfinishedRun() {
  static Unfinished run;
  return run;
}

inline int RunProgram(int argc, char** argv, void (*reference)(Results&), void (*device)(Results&)) {
  Results expected;
  if (argc > 1 && strcmp(argv[1], "--reference") == 0) {
    reference(expected);
  } else if (argc > 1 && strcmp(argv[1], "--values") == 0) {
    Results results;
    device(results);
    results.Print();
    return 0;
  } else if (argc > 1) {
    Fail("unknown option %s (--reference and --values are known)", argv[1]);
  } else {
    reference(expected);
    Results results;
    UnfinishedRun() = {&results, &expected};
    device(results);
    UnfinishedRun() = {};
    results.FailUnlessEqual(expected);
  }
  printf("checksum: %016llx OK\n", static_cast<unsigned long long>(expected.ChecksumOfAll()));
  return fflush(stdout) == 0 ? 0 : 1;
}

inline void CheckCuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  const char* base = strrchr(file, '/');
  if (const Unfinished run = UnfinishedRun(); run.results != nullptr) run.results->PrintDifferences(*run.expected);
  Fail("%s:%d: %s: %s (%d)", base ? base + 1 : file, line, call, cudaGetErrorName(error), static_cast<int>(error));
}

// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // In [0, 1), a multiple of 2^-24: sums and products of few of them are still rounded alike everywhere.
  float NextFloat() { return static_cast<float>(Next() >> 40) * (1.0f / 16777216.0f); }

 private:
  uint64_t state_;
};

// Which random programs are to be played: PROGRAM_SEEDS=FIRST-LAST of the environment, else those.
struct Seeds {
  unsigned first, last;
};
inline Seeds SeedsToPlay(Seeds committed) {
  const char* const seeds = getenv("PROGRAM_SEEDS");
  if (seeds != nullptr && sscanf(seeds, "%u-%u", &committed.first, &committed.last) != 2)
    Fail("PROGRAM_SEEDS is FIRST-LAST");
  return committed;
}

template <class T>
std::vector<T> RandomIntegers(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(sizeof(T) == 8 ? random.Next() : random.Next() >> 7);
  return values;
}

inline std::vector<float> RandomFloats(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.NextFloat();
  return values;
}

}  // namespace check

#define CHECK_CUDA(call) ::check::CheckCuda((call), #call, __FILE__, __LINE__)
// After <<<>>>: the launch itself was accepted.
#define CHECK_LAUNCH() CHECK_CUDA(cudaGetLastError())

namespace check {

// Device memory that frees itself; copies are synchronous.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : count_(count) { CHECK_CUDA(cudaMalloc(&pointer_, count * sizeof(T))); }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) { Upload(values); }
  ~DeviceBuffer() { cudaFree(pointer_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* get() const { return pointer_; }
  size_t size_bytes() const { return count_ * sizeof(T); }
  void Zero() { CHECK_CUDA(cudaMemset(pointer_, 0, size_bytes())); }
  void Upload(const std::vector<T>& values) {
    CHECK_CUDA(cudaMemcpy(pointer_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> Download() const {
    std::vector<T> values(count_);
    CHECK_CUDA(cudaMemcpy(values.data(), pointer_, size_bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* pointer_ = nullptr;
  size_t count_;
};

}  // namespace check
