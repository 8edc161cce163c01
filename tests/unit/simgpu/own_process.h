#pragma once

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

/// For tests whose subject is what PLEXRL_SIMGPU says: each runs in a process of its own, since a
/// process reads it once.
namespace plexrl::simgpu {

/// Runs `body` in a child with `spec` as PLEXRL_SIMGPU and returns what it returned; "threw: …" or
/// "ended by itself" when it didn't return. The calling process must not have called cuInit.
inline std::string in_own_process(const std::string& spec,
                                  const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    setenv("PLEXRL_SIMGPU", spec.c_str(), 1);
    std::string said;
    try {
      said = body();
    } catch (const std::exception& error) {
      said = std::string("threw: ") + error.what();
    }
    said += '\n';
    if (write(ends[1], said.data(), said.size()) != static_cast<ssize_t>(said.size())) _exit(1);
    exit(0);  // with the exit handlers: the driver's is part of what is tested
  }
  close(ends[1]);
  std::string said;
  char part[512];
  for (ssize_t size; (size = read(ends[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<std::size_t>(size));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (said.empty() || status != 0) return "ended by itself: " + std::to_string(status);
  said.pop_back();
  return said;
}

/// Inside such a body.
inline void require(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error(what);
}

}  // namespace plexrl::simgpu
