#include "server/device-plugin/container_places.h"

#include "proto/control/socket_paths.h"
#include "server/ctl/cdi_specification.h"

namespace tally::device_plugin {
namespace {

std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

void AddMount(const std::string& from, const std::string& to, v1beta1::ContainerAllocateResponse& response) {
  v1beta1::Mount& mount = *response.add_mounts();
  mount.set_host_path(from);
  mount.set_container_path(to);
  mount.set_read_only(true);
}

}  // namespace

Result<v1beta1::ContainerAllocateResponse> Furnish(const ContainerPlaces& places, const std::string& tenant,
                                                   const std::string& socket) {
  v1beta1::ContainerAllocateResponse response;
  if (!places.cdi_directory.empty()) {
    const std::string text = cli::CdiSpecification({places.client_library, socket, places.image_libraries, tenant});
    const std::string path = places.cdi_directory + "/tally.dev-" + tenant + ".json";
    if (const std::string problem = cli::WriteCdiSpecification(path, text); !problem.empty()) {
      return Error(StatusCode::kFailedPrecondition, problem);
    }
    response.add_cdi_devices()->set_name("tally.dev/gpu=" + tenant);
    return response;
  }
  // The directory and not the socket: a tallyd that is started again makes a new one.
  AddMount(DirectoryOf(socket), control::kSystemRuntimeDir, response);
  for (const std::string& library : places.image_libraries) AddMount(places.client_library, library, response);
  AddMount(DirectoryOf(places.client_library), cli::kClientDirectoryInside, response);
  return response;
}

}  // namespace tally::device_plugin
