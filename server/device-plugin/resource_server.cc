#include "server/device-plugin/resource_server.h"

#include <grpcpp/server_builder.h>
#include <unistd.h>

#include "base/log.h"

namespace tally::device_plugin {
namespace {

// How long a call that is being answered may hold up the end of a server.
constexpr std::chrono::seconds kEndLimit{2};

}  // namespace

ResourceServer::ResourceServer(Resource resource, const ContainerPlaces& places, DeviceGrants& grants,
                               const Kubelet& kubelet)
    : resource_(std::move(resource)), places_(places), grants_(grants), kubelet_(kubelet) {}

ResourceServer::~ResourceServer() { StopServing(); }

void ResourceServer::SetDevices(const std::map<std::string, bool>& gpus) {
  devices_ = DevicesOf(resource_, gpus);
  if (service_ != nullptr) service_->SetDevices(devices_);
}

bool ResourceServer::Serve() {
  const std::string path = kubelet_.PathOf(resource_.endpoint);
  ::unlink(path.c_str());  // of a plugin before us
  service_ = std::make_unique<DeviceService>(resource_, places_, grants_);
  service_->SetDevices(devices_);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  own_ = StampOf(path);
  if (server_ != nullptr && own_.is_there()) return true;
  StopServing();
  return false;
}

void ResourceServer::StopServing() {
  if (service_ != nullptr) service_->EndStreams();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kEndLimit);
  server_.reset();
  service_.reset();
  own_ = {};
  registered_ = {};
}

void ResourceServer::Tend(RegistrationPace::Time now) {
  const SocketStamp kubelet = kubelet_.Stamp();
  const bool is_own_there = own_.is_there() && StampOf(kubelet_.PathOf(resource_.endpoint)) == own_;
  if (is_own_there && kubelet == registered_) return;
  std::string problem;
  if (!kubelet.is_there()) {
    registered_ = {};
    problem = "no kubelet is at '" + kubelet_.PathOf("kubelet.sock") + "': I wait for it";
  } else if (!pace_.MayTry(now)) {
    return;
  } else {
    pace_.OnTry(now);
    if (!is_own_there) StopServing();
    if (!is_own_there && !Serve()) {
      problem = "cannot listen at '" + kubelet_.PathOf(resource_.endpoint) + "': I try again";
    } else if (const Status registered = kubelet_.Register(resource_); !registered.ok()) {
      problem = registered.message() + ": I try again";
    } else {
      registered_ = kubelet;
      LOG_INFO("kubelet knows {}: {} devices, {}", resource_.name, devices_.size(),
               resource_.is_high ? "high-priority" : "best-effort");
    }
  }
  if (!problem.empty() && problem != last_problem_) LOG_WARNING("{}", problem);
  last_problem_ = problem;
}

}  // namespace tally::device_plugin
