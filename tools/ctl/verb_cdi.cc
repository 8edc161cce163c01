// plexrl-ctl cdi generate: what container runtimes are told.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/places.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/installation.h"
#include "tools/cli/socket_path.h"
#include "tools/ctl/cdi.h"
#include "tools/ctl/which_gpu.h"

namespace plexrl::ctl {
namespace {

constexpr char kFooter[] = R"(
Then `docker run --device plexrl.local/share=node IMAGE plexrl-run -- COMMAND`, and alike with podman: the container has plexrl-run, the
preload and the job socket, never the socket for administration. Run it again when PlexRL was installed elsewhere.

Example:
  plexrl-ctl cdi generate --output /etc/cdi/plexrl.json

Environment: PLEXRL_SOCKET (the manager's job socket).
)";

int complain(int status, const std::string& what) {
  std::cerr << "plexrl-ctl: " << what << "\n";
  return status;
}

/// The first that there is, or where the service's would be.
cli::SocketPath job_socket(const std::optional<std::string>& simgpu) {
  const auto sockets = cli::socket_paths(cli::process_env(), simgpu);
  for (const cli::SocketPath& socket : sockets) {
    struct stat seen {};
    if (::stat(socket.path.c_str(), &seen) == 0) return socket;
  }
  return sockets.front();
}

/// Readers never see half of it.
absl::Status write_whole(const std::string& file, const std::string& text) {
  const std::string part = file + ".new";
  std::ofstream out(part, std::ios::trunc);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(part, file, error);
  if (out && !error) return absl::OkStatus();
  std::remove(part.c_str());
  return nodemgr::failed(file, " can't be written: is its folder there, and may you write to it?");
}

int generate(const std::string& output, const std::string& simgpu_flag) {
  const auto simgpu = simulated_gpu(cli::process_env(), simgpu_flag);
  if (!simgpu.ok()) return complain(cli::kUsage, nodemgr::message_of(simgpu.status()));
  const cli::Installation installation = cli::this_installation();
  const cli::SocketPath socket = job_socket(*simgpu);
  const CdiPlaces places = {installation.run, installation.library,
                            std::filesystem::absolute(socket.path).lexically_normal()};
  absl::Status status = check_places(places);
  if (!status.ok()) return complain(cli::kFailed, nodemgr::message_of(status));
  if (socket.path != nodemgr::kSystemSocket) {
    std::cerr << "plexrl-ctl: note: containers lose " << places.socket
              << " when that manager ends; the service's, /run/plexrl/nodemgr.sock, stays\n";
  }
  const std::string text = cdi_spec(places).dump(2) + "\n";
  if (!output.empty()) {
    status = write_whole(output, text);
    return status.ok() ? cli::kDone : complain(cli::kFailed, nodemgr::message_of(status));
  }
  std::cout << text;
  return std::cout.flush() ? cli::kDone : complain(cli::kFailed, "stdout: can't be written");
}

}  // namespace

int run_cdi(int argc, char** argv) {
  CLI::App app("What container runtimes are told.", "plexrl-ctl");
  CLI::App* const verb = app.add_subcommand("cdi", "what container runtimes are told of this node")
                             ->require_subcommand(1);
  CLI::App* const made =
      verb->add_subcommand("generate", "a CDI specification, for docker, podman and others");
  app.require_subcommand(1);
  app.fallthrough();
  made->footer(kFooter);
  std::string output, simgpu;
  made->add_option("--output", output, "where to [stdout]")->type_name("FILE");
  app.add_flag("--simgpu", simgpu,
               "the manager of a simulated GPU; --simgpu=name=N for one of several");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain(cli::kUsage, error.what());
  }
  return generate(output, simgpu);
}

}  // namespace plexrl::ctl
