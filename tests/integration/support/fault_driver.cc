// libtally-fault-driver.so: the software driver behind a table of functions of which one can be told to fail. An
// executor loads it in place of that driver (TALLY_SIM_DRIVER), so nothing that is shipped knows of it.
//
// fault_rig.py talks to it over the UNIX socket `$TALLY_FAULT_DIRECTORY/fault-PID`, a word per connection:
//   arm FUNCTION N CODE FORM  the Nth call of FUNCTION from now on returns CODE; counts of calls begin at 0 again
//   disarm                    none does
//   calls                     a line "FUNCTION CALLS" for each function that was called since; first "fired 0|1"
//   live                      what is alive in the software driver (cuTallyDescribeLive)
// FORM: `instead` of the call, `after` it (an error of earlier work: what was to be freed is free), or `lost`: as
// `instead`, and all later calls fail alike, as natively when a context is lost. `$TALLY_FAULT_DIRECTORY/plan` holds
// such an `arm` line for the next executor that starts; it takes the file away.
#include <cuda.h>
#include <cudaProfiler.h>
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace {

enum Index : size_t {
#define TALLY_DRIVER_FUNCTION(symbol) kIndex_##symbol,
#include "tests/integration/fault_driver_functions.inc"
#undef TALLY_DRIVER_FUNCTION
  kNumFunctions
};

constexpr std::array<std::string_view, kNumFunctions> kNames = {
#define TALLY_DRIVER_FUNCTION(symbol) #symbol,
#include "tests/integration/fault_driver_functions.inc"
#undef TALLY_DRIVER_FUNCTION
};

enum class Form { kInstead, kAfter, kLost };

// What works in a process whose context is lost.
bool NeedsNoContext(std::string_view name) {
  return name.starts_with("cuDevice") || name.starts_with("cuGetError") || name.starts_with("cuCtxGet") ||
         name == "cuInit" || name == "cuDriverGetVersion" || name == "cuCtxSetCurrent" || name == "cuCtxDestroy_v2" ||
         name.starts_with("cuCtxPush") || name.starts_with("cuCtxPop");
}

struct Faults {
  std::array<std::atomic<uint64_t>, kNumFunctions> num_calls{};
  // What is armed: written while `armed` is kNumFunctions.
  std::atomic<size_t> armed{kNumFunctions};
  uint64_t nth = 0;
  CUresult code = CUDA_SUCCESS;
  Form form = Form::kInstead;
  std::atomic<bool> has_fired{false};
  std::atomic<int> lost{CUDA_SUCCESS};

  // True if this call of `index` is the one.
  bool Note(size_t index) {
    const uint64_t number = num_calls[index].fetch_add(1) + 1;
    if (armed.load(std::memory_order_acquire) != index || number != nth) return false;
    if (form == Form::kLost) lost.store(code);
    has_fired.store(true);
    std::fprintf(stderr, "fault driver: call %llu of %s returns %d\n", static_cast<unsigned long long>(number),
                 kNames[index].data(), static_cast<int>(code));
    return true;
  }

  std::string Arm(std::istream& words) {
    std::string name, form_name;
    uint64_t number = 0;
    int result = 0;
    words >> name >> number >> result >> form_name;
    size_t index = 0;
    while (index < kNumFunctions && kNames[index] != name) ++index;
    if (!words || index == kNumFunctions) return "error: no such function, or not enough words\n";
    armed.store(kNumFunctions);
    for (auto& calls : num_calls) calls.store(0);
    has_fired.store(false);
    nth = number;
    code = static_cast<CUresult>(result);
    form = form_name == "after" ? Form::kAfter : form_name == "lost" ? Form::kLost : Form::kInstead;
    armed.store(index, std::memory_order_release);
    return "ok\n";
  }

  std::string Calls() {
    std::string text = has_fired.load() ? "fired 1\n" : "fired 0\n";
    for (size_t i = 0; i < kNumFunctions; ++i) {
      if (const uint64_t calls = num_calls[i].load(); calls != 0) {
        text += std::string(kNames[i]) + " " + std::to_string(calls) + "\n";
      }
    }
    return text;
  }
};

Faults& GetFaults() {
  static auto& faults = *new Faults();
  return faults;
}

void* Library() {
  static void* const library = ::dlopen(TALLY_FAULTLESS_DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "fault driver: %s\n", ::dlerror());
    std::abort();
  }
  return library;
}

template <typename Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(::dlsym(Library(), name));
}

template <size_t index, typename Function>
struct Entry;
template <size_t index, typename... Arguments>
struct Entry<index, CUresult (*)(Arguments...)> {
  static CUresult Call(Arguments... arguments) {
    static const auto real = Find<CUresult (*)(Arguments...)>(kNames[index].data());
    Faults& faults = GetFaults();
    if (faults.Note(index)) {
      if (faults.form == Form::kAfter) real(arguments...);
      return faults.code;
    }
    if (const int lost = faults.lost.load(); lost != CUDA_SUCCESS && !NeedsNoContext(kNames[index])) {
      return static_cast<CUresult>(lost);
    }
    return real(arguments...);
  }
};

std::string Live() {
  std::array<char, 4096> text;
  size_t size = 0;
  Find<CUresult (*)(char*, size_t, size_t*)>("cuTallyDescribeLive")(text.data(), text.size(), &size);
  return {text.data(), size};
}

std::string Answer(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  if (word == "arm") return GetFaults().Arm(words);
  if (word == "calls") return GetFaults().Calls();
  if (word == "live") return Live();
  if (word != "disarm") return "error: no such word\n";
  GetFaults().armed.store(kNumFunctions);
  return "ok\n";
}

void Serve(int listener) {
  while (true) {
    const int peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0) continue;
    std::array<char, 256> line;
    const ssize_t size = ::recv(peer, line.data(), line.size(), 0);
    if (size > 0) {
      const std::string answer = Answer(std::string(line.data(), static_cast<size_t>(size)));
      (void)::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    ::close(peer);
  }
}

// When the library is loaded: the first call may be the one that is to fail.
[[gnu::constructor]] void Start() {
  const char* directory = std::getenv("TALLY_FAULT_DIRECTORY");
  if (directory == nullptr) return;
  const std::string plan = std::string(directory) + "/plan";
  const std::string mine = plan + "-" + std::to_string(::getpid());
  if (std::rename(plan.c_str(), mine.c_str()) == 0) {
    std::ifstream file(mine);
    std::string line;
    std::getline(file, line);
    Answer(line);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/fault-%d", directory, ::getpid());
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || ::listen(listener, 16) != 0) {
    std::perror("fault driver");
    std::abort();
  }
  std::thread(Serve, listener).detach();
}

}  // namespace

// The exported names: each jumps to its Entry. In assembly, because cuda.h declares them with parameters by name only.
#define TALLY_DRIVER_FUNCTION(symbol)                                                                               \
  extern "C" [[gnu::visibility("hidden"), gnu::used]] decltype(&::symbol) const tally_entry_##symbol =              \
      &Entry<kIndex_##symbol, decltype(&::symbol)>::Call;                                                           \
  asm(".pushsection .text\n.globl " #symbol "\n.type " #symbol ",@function\n" #symbol ": jmp *tally_entry_" #symbol \
      "(%rip)\n.popsection\n");
#include "tests/integration/fault_driver_functions.inc"
#undef TALLY_DRIVER_FUNCTION
