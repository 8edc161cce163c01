#include "tests/workloads/rlvr/processes.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

namespace plexrl::workloads::rlvr {

struct Rendezvous::Page {
  struct {
    std::atomic<int> is_there;
    UniqueId id;
  } ids[kGroups];
};

Rendezvous::Rendezvous(int count, int pairs) : pipes_(static_cast<std::size_t>(pairs)) {
  void* const page =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw DriverError("no memory that processes share");
  page_ = static_cast<Page*>(page);
  for (auto& ends : pipes_) {
    if (2 * pairs > count || pipe(ends.data()) != 0) throw DriverError("no pipe between processes");
  }
}

UniqueId Rendezvous::unique_id(Group group, bool is_first) {
  auto& slot = page_->ids[group];
  if (is_first) {
    slot.id = make_unique_id();
    slot.is_there.store(1, std::memory_order_release);
  }
  while (slot.is_there.load(std::memory_order_acquire) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return slot.id;
}

void Rendezvous::send(int pair, const void* bytes, std::size_t count) const {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t sent = write(pipes_[static_cast<std::size_t>(pair)][1], at, count);
    if (sent <= 0) throw DriverError("the process that trains has ended");
    at += sent;
    count -= static_cast<std::size_t>(sent);
  }
}

void Rendezvous::receive(int pair, void* bytes, std::size_t count) const {
  auto* at = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = read(pipes_[static_cast<std::size_t>(pair)][0], at, count);
    if (got <= 0) throw DriverError("the process that samples has ended");
    at += got;
    count -= static_cast<std::size_t>(got);
  }
}

int run_in_processes(int count, const std::function<int(int)>& body) {
  std::vector<pid_t> children;
  std::vector<int> outputs;
  const pid_t parent = getpid();
  for (int number = 0; number < count; ++number) {
    outputs.push_back(memfd_create("rlvr-output", MFD_CLOEXEC));
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      dup2(outputs.back(), STDOUT_FILENO);
      exit(body(number));
    }
    children.push_back(child);
  }
  int result = 0;
  for (int left = count; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    std::replace(children.begin(), children.end(), ended, -1);
    if (status == 0 || result != 0) continue;
    result = 1;
    for (const pid_t child : children) {
      if (child > 0) kill(child, SIGKILL);
    }
  }
  for (const int output : outputs) {
    char part[4096];
    lseek(output, 0, SEEK_SET);
    for (ssize_t got; (got = read(output, part, sizeof part)) > 0;)
      std::fwrite(part, 1, static_cast<std::size_t>(got), stdout);
    close(output);
  }
  return result;
}

}  // namespace plexrl::workloads::rlvr
