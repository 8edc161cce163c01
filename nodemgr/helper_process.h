#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nodemgr/event_loop.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// A small program that the manager starts for one thing, and kills when it is late. It has our
/// environment, /dev/null for input, our stderr, and a pipe for what it has to say.
///
/// One at a time. The loop's thread.
class HelperProcess {
 public:
  struct End {
    bool ok = false;   ///< it exited with 0
    bool ran = true;   ///< false: it did nothing at all (exit 3; or, by the caller, not started)
    std::string text;  ///< the line that it wrote; or how it ended
  };

  HelperProcess(EventLoop& loop, int timer) : loop_(loop), timer_(timer) {}
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  /// `done` is called once, from the loop, when it has ended; it may start the next. False with
  /// errno, and `done` is never called: it could not be started.
  bool start(const std::vector<std::string>& arguments, std::chrono::nanoseconds patience,
             std::function<void(const End&)> done);
  bool is_running() const { return pid_ != 0; }

 private:
  void ended();
  End collect();

  EventLoop& loop_;
  int timer_;
  pid_t pid_ = 0;
  ScopedFd pidfd_, output_;
  bool was_late_ = false;
  std::function<void(const End&)> done_;
};

/// "FOLDER/lib/plexrl/NAME", FOLDER being the nearest around this program that has it; else NAME.
std::string beside_this_program(const std::string& name);

}  // namespace plexrl::nodemgr
