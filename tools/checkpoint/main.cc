// plexrl-checkpoint: has the driver take the processes of a gang off their GPUs, or bring them
// back. The node manager, which makes no CUDA calls, starts it for one such operation.
//
//   plexrl-checkpoint STARTER leave LOCK_TIMEOUT_MS PID:START...
//   plexrl-checkpoint STARTER return PID:START...
//
// Exit: 0 done, and a line on stdout says which processes the driver has given up; 1 not done, one
// line on stdout says why; 2 wrong usage; 3 as 1, and no process was touched, because there is no
// driver. It ends with the process STARTER that started it, so that no two are at work: an
// operation cut off is completed or undone by the next `return`.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "nodemgr/fault_point.h"
#include "tools/checkpoint/driver_library.h"
#include "tools/checkpoint/gang.h"

namespace plexrl::checkpoint {
namespace {

int usage() {
  std::fputs(
      "usage: plexrl-checkpoint STARTER leave LOCK_TIMEOUT_MS PID:START...\n"
      "       plexrl-checkpoint STARTER return PID:START...\n"
      "The node manager starts it; it is not for use by hand.\n",
      stderr);
  return 2;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) return usage();
  const bool leaves = arguments[1] == "leave";
  if (!leaves && arguments[1] != "return") return usage();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != arguments[0]) return 1;  // it had ended before
  std::size_t next = 2;
  unsigned timeout_ms = 0;
  if (leaves) {
    if (arguments.size() < 3) return usage();
    timeout_ms = static_cast<unsigned>(std::strtoul(arguments[next++].c_str(), nullptr, 10));
  }
  std::vector<Target> targets;
  for (; next < arguments.size(); ++next) {
    Target target;
    if (!parse_target(arguments[next], &target)) return usage();
    targets.push_back(target);
  }
  if (targets.empty()) return usage();
  nodemgr::fault_point(leaves ? "checkpoint_before_leave" : "checkpoint_before_return");
  DriverLibrary driver{};
  std::string why;
  const bool has_driver = open_driver(&driver, &why);
  if (has_driver) {
    Gang gang(driver, std::move(targets));
    why = leaves ? gang.leave(timeout_ms) : gang.come_back();
    if (why.empty() && !gang.lost().empty()) std::printf("%s\n", gang.lost().c_str());
  }
  if (leaves) nodemgr::fault_point("checkpoint_after_leave");
  if (why.empty()) return 0;
  std::printf("%s\n", why.c_str());
  return has_driver ? 1 : 3;
}

}  // namespace
}  // namespace plexrl::checkpoint

int main(int argc, char** argv) { return plexrl::checkpoint::run({argv + 1, argv + argc}); }
