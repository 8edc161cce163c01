#include "tools/ctl/cdi.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "nodemgr/settings/cat.h"

namespace plexrl::ctl {
namespace {

using nodemgr::cat;

constexpr char kVersion[] = "0.3.0";  // the first that is released: all that is used here is in it
constexpr char kKind[] = "plexrl.local/share";
constexpr char kDevice[] = "node";
// plexrl-run finds the preload from its own place (tools/cli/installation.h).
constexpr char kRunInside[] = "/usr/local/bin/plexrl-run";
constexpr char kLibraryInside[] = "/usr/local/lib/plexrl/libplexrl.so";
constexpr char kSocketInside[] = "/run/plexrl/nodemgr.sock";

Json mount(const std::string& here, const char* inside, const std::vector<std::string>& options) {
  return {{"hostPath", here}, {"containerPath", inside}, {"options", options}};
}

}  // namespace

absl::Status check_places(const CdiPlaces& places) {
  for (const std::string& file : {places.run, places.library}) {
    if (::access(file.c_str(), R_OK) != 0) {
      return nodemgr::failed(file, " can't be read: is PlexRL installed as a whole?");
    }
  }
  struct stat seen {};
  if (::stat(places.socket.c_str(), &seen) != 0 || !S_ISSOCK(seen.st_mode)) {
    return nodemgr::failed(
        places.socket,
        " is no socket of a node manager: start the service (systemctl enable --now ",
        "plexrl-nodemgr.socket), or say by PLEXRL_SOCKET where one listens");
  }
  if (std::filesystem::path(places.socket).filename() == "admin.sock") {
    return nodemgr::invalid(places.socket,
                            " is for administration, and no container's: PLEXRL_SOCKET is the job "
                            "socket, nodemgr.sock beside it");
  }
  return absl::OkStatus();
}

Json cdi_spec(const CdiPlaces& places) {
  Json edits;
  edits["env"] = {cat("PLEXRL_SOCKET=", kSocketInside)};
  edits["mounts"] = {mount(places.run, kRunInside, {"bind", "ro", "nosuid", "nodev"}),
                     mount(places.library, kLibraryInside, {"bind", "ro", "nosuid", "nodev"}),
                     mount(places.socket, kSocketInside, {"bind", "nosuid", "nodev", "noexec"})};
  Json spec;
  spec["cdiVersion"] = kVersion;
  spec["kind"] = kKind;
  spec["devices"] = Json::array();
  spec["devices"].push_back({{"name", kDevice}, {"containerEdits", std::move(edits)}});
  return spec;
}

}  // namespace plexrl::ctl
