// The daemon's settings file: applied whole or refused with a line that begins with its name.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "nodemgr/daemon_settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plexrl::nodemgr;
  static const int kFile = memfd_create("settings.toml", MFD_CLOEXEC);
  static const std::string kPath = "/proc/self/fd/" + std::to_string(kFile);
  if (ftruncate(kFile, 0) != 0 || pwrite(kFile, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  settings::Values values(daemon_table());
  const std::string team[] = {"team"};
  const absl::Status status = settings::apply_file(values, kPath, team);
  if (!status.ok() && status.message().substr(0, kPath.size()) != kPath) std::abort();
  // What was accepted can be asked for by its kind: a text of another kind would abort here.
  for (const settings::Row& row : daemon_table()) {
    switch (row.kind) {
      case settings::Kind::kBytes:
        values.bytes(row.name);
        break;
      case settings::Kind::kDuration:
        values.duration(row.name);
        break;
      case settings::Kind::kNumber:
        values.number(row.name);
        break;
      case settings::Kind::kCount:
        values.count(row.name);
        break;
      case settings::Kind::kText:
        values.text(row.name);
        break;
      case settings::Kind::kSwitch:
        values.is_on(row.name);
        break;
    }
  }
  policy_config(values);
  return 0;
}
