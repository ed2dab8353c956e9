// The tallyd of this machine, as far as the plugin needs it. Calls block, for ten seconds at most; any thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/device-plugin/virtual_devices.h"

namespace tally::device_plugin {

// Who has a device, as kubelet says.
struct Holder {
  std::string label_namespace, pod, container;
  bool operator==(const Holder&) const = default;
};

// A seam: tests have one of their own.
class Tallyd {
 public:
  virtual ~Tallyd() = default;
  // "cuda" or "sim": what it runs programs on.
  virtual Result<std::string> Driver() = 0;
  // Processes, by the numbers that tallyd sees.
  virtual Result<std::vector<pid_t>> Executors() = 0;
  // The grants that there are, and whom they are labelled for.
  virtual Result<std::map<std::string, Holder>> Grants() = 0;
  // Where the tenant connects, on the host. `gpu`: the UUID of the only GPU that it may use; empty: all.
  virtual Result<std::string> CreateGrant(const std::string& tenant, const Resource& resource,
                                          const std::string& gpu) = 0;
  virtual Status LabelGrant(const std::string& tenant, const Holder& holder) = 0;
  // kNotFound: there is none.
  virtual Status RevokeGrant(const std::string& tenant) = 0;
};

// By the control socket beside this socket of clients.
class TallydBySocket final : public Tallyd {
 public:
  explicit TallydBySocket(std::string socket) : socket_(std::move(socket)) {}
  Result<std::string> Driver() override;
  Result<std::vector<pid_t>> Executors() override;
  Result<std::map<std::string, Holder>> Grants() override;
  Result<std::string> CreateGrant(const std::string& tenant, const Resource& resource, const std::string& gpu) override;
  Status LabelGrant(const std::string& tenant, const Holder& holder) override;
  Status RevokeGrant(const std::string& tenant) override;

 private:
  std::string socket_;
};

}  // namespace tally::device_plugin
