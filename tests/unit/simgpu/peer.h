#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/unit/simgpu/hex.h"

extern char** environ;

namespace plexrl::simgpu {

/// A process_peer that runs beside the test. Killed at the end.
class Peer {
 public:
  explicit Peer(std::vector<std::string> arguments) {
    int ends[2];
    int orders[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe2(orders, O_CLOEXEC) != 0) std::abort();
    arguments.insert(arguments.begin(), PLEXRL_TEST_PEER);
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, orders[0], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    if (posix_spawn(&pid_, pointers[0], &actions, nullptr, pointers.data(), environ) != 0) pid_ = 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    close(orders[0]);
    out_ = ends[0];
    in_ = orders[1];
  }
  ~Peer() {
    kill_now();
    close(out_);
    close(in_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// The next line that it writes.
  std::string said() const {
    std::string line;
    for (char c = 0; read(out_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  /// Writes a line to it.
  void say(const std::string& line) const {
    const std::string text = line + "\n";
    if (write(in_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  }
  bool has_said_something() const {
    pollfd out{out_, POLLIN, 0};
    return poll(&out, 1, 0) == 1;
  }
  pid_t pid() const { return pid_; }
  /// Waits for its end and returns its exit status.
  int status() {
    int status = -1;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void kill_now() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    status();
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
  int in_ = -1;
};

}  // namespace plexrl::simgpu
