// Messages on the UNIX sockets by which a client gets a session: first with tallyd, then with its executor.
//
//   client                        tallyd                              executor of the client's domain
//     | -- HelloRequest ---------> |                                        |
//     |                            | (checks SO_PEERCRED, finds the domain)  |
//     |                            | -- one end of a new socket pair ------> |
//     | <- HelloReply + other end- |                                        |
//     | (closes this socket)                                                |
//     | == session socket: SessionRequest / SessionReply, one at a time ==> |
//
// All sockets are SOCK_SEQPACKET (base/unix_socket.h): one struct is one message, descriptors ride along. The session
// socket stays open for the client's life: its end is how either side learns that the other died. It carries only what
// needs a descriptor; every driver call goes through a channel (shm/channel_abi.h).
//
// Trust: the server takes identity from the socket (SO_PEERCRED), never from a field here. Names are for people.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::shm {

inline constexpr uint32_t kHelloMagic = 0x594C4154;  // "TALY" in memory
// Raised by any change to a header of this folder that an older peer would misread.
inline constexpr uint32_t kProtocolVersion = 3;

inline constexpr size_t kTenantNameBytes = 64;   // NUL-terminated; default is the program's name
inline constexpr size_t kDomainNameBytes = 32;   // NUL-terminated; empty: the domain of the priority class
inline constexpr size_t kSloBytes = 24;          // NUL-terminated, as users write it: "p99=2ms"; empty: none
inline constexpr size_t kHelloErrorBytes = 512;  // NUL-terminated sentence for a person

// The two classes of tenant. kDefault lets the configuration decide (best-effort unless it says otherwise).
enum class PriorityClass : uint32_t { kDefault = 0, kHighPriority = 1, kBestEffort = 2 };

// Whether a client wants an executor that its user's other programs are not in (docs/sharing.md). What it says only
// ever separates it from others of its owner.
enum class OwnDomain : uint8_t {
  kNo = 0,
  kRank = 1,   // one for its rank of a job: with others that say the same rank and job (domain_name)
  kApart = 2,  // one for this process
};

// Client to tallyd, first and only message.
struct HelloRequest {
  uint32_t magic;             // kHelloMagic
  uint32_t protocol_version;  // kProtocolVersion
  uint64_t api_table_hash;    // of proto/driver/driver_api.tsv at build time
  uint16_t priority_class;    // PriorityClass
  uint8_t window;             // control::WindowMode. This and the next were part of the field before: kOff and
  uint8_t graphs;             // ... kPartitions (control::GraphMode) is what older clients say
  uint16_t weight;            // among best-effort tenants, 1 to 10000; 0: the default
  uint8_t level;              // among high-priority tenants, 0 to 7
  uint8_t keeps_kernels;      // 1: its kernels run as they are, whatever tallyd allows; 0: as tallyd says
  char tenant_name[kTenantNameBytes];
  char domain_name[kDomainNameBytes];  // of kRank: the job's name
  char slo[kSloBytes];                 // of a high-priority program: tallyd says what is wrong with it
  uint64_t turnaround_ns;  // how soon its kernels should give the GPU back, 1,000 to 1,000,000,000; 0: as tallyd says
  // What its tenant may hold on each GPU and have of its time, if that is less than tallyd says; 0: as tallyd says.
  uint64_t device_memory_bytes;
  uint32_t share_permille;  // up to 1,000
  uint8_t only_starts;      // 1: it is there to start an executor, and is no process of its tenant (tenant_view_abi.h)
  uint8_t own_domain;       // OwnDomain. This and the next were part of the field before: older clients say kNo
  uint16_t rank;            // of kRank
};
static_assert(sizeof(HelloRequest) == 168);
static_assert(offsetof(HelloRequest, window) == 18 && offsetof(HelloRequest, tenant_name) == 24 &&
              offsetof(HelloRequest, domain_name) == 88 && offsetof(HelloRequest, slo) == 120 &&
              offsetof(HelloRequest, turnaround_ns) == 144 && offsetof(HelloRequest, device_memory_bytes) == 152 &&
              offsetof(HelloRequest, share_permille) == 160 && offsetof(HelloRequest, rank) == 166);

// tallyd to client. With status 0 it carries one descriptor: the session socket.
struct HelloReply {
  uint32_t magic;
  uint32_t protocol_version;  // tallyd's own, so that the client can say what differs
  uint64_t api_table_hash;    // likewise
  uint64_t session_id;        // unique while the machine is up; for logs and tallyctl
  uint32_t status_code;       // tally::StatusCode; 0 is accepted
  uint32_t reserved;
  char error[kHelloErrorBytes];
};
static_assert(sizeof(HelloReply) == 544);

enum class SessionRequestKind : uint32_t {
  kAttach = 1,        // -> descriptor of the session region; value0 = its bytes, value1 = what it wants. Once, first.
  kOpenChannel = 2,   // -> descriptor of a new channel's region; value0 = its bytes, value1 = channel number
  kAllocateHost = 3,  // value0 = bytes, value1 = device ordinal, value2 = HostMemoryUse -> value0 = address, value1 =
                      // bytes mapped, descriptor of the memory: the client maps it at exactly that address
  kRejectHost =
      4,  // value0 = address: the client could not map it there; the server forgets it (the client asks again)
  // With the descriptor of memory that the client has mapped shared and writable (a sealed memfd, or a file of a
  // tmpfs): value0 = address of its first page there, value1 = bytes (whole pages), value2 = where they start in the
  // file -> value0 = address in the executor: the same one if nothing is there, else one of the window of
  // kAllocateHost. Freed like memory of kAllocateHost (Op::kFreeHost).
  kRegisterHost = 5,
  // Only where kTakesArrivals was offered: the client wants to say when work is expected (arrival_abi.h). Once more is
  // no error. CUDA_ERROR_NOT_SUPPORTED: nobody may, because of this session's class or because both classes are in
  // this executor.
  kOpenArrivals = 6,
};

// The executor can make use of the PTX that machine code was made from: to give kernels other forms, or to run them.
inline constexpr uint64_t kWantsPtx = 1;
// It has a window for this session, so it can make use of what launches are said to touch (kLaunchDeclared).
inline constexpr uint64_t kWantsDeclarations = 2;
// It spreads graphs of this session over several GPUs, so it can make use of what their tasks are said to touch
// (Op::kBeginTask).
inline constexpr uint64_t kWantsTasks = 8;
// It knows kOpenArrivals.
inline constexpr uint64_t kTakesArrivals = 4;

enum class HostMemoryUse : uint64_t { kPinned = 0, kManaged = 1 };

// Client to executor on the session socket; the client waits for the reply before it sends the next.
struct SessionRequest {
  uint32_t kind;    // SessionRequestKind
  uint32_t device;  // kRegisterHost: ordinal
  uint64_t value[3];
};
static_assert(sizeof(SessionRequest) == 32);

struct SessionReply {
  uint32_t kind;         // of the request
  uint32_t cuda_result;  // CUresult; 0 is done
  uint64_t value[3];
};
static_assert(sizeof(SessionReply) == 32);

// A client's limits; asking for more is answered with an error, not with eviction.
inline constexpr uint32_t kMaxChannelsPerSession = 512;

}  // namespace tally::shm
