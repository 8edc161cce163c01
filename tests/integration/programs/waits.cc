// For run_observer.py: works on the GPU, then waits, in a way that it is told, until the runner
// says stop, and works again.
//
//   waits sleep | lock | lock_for_sleep | cpu | child | pipe | tcp PORT | epoll PORT | device PATH
//   |
//         files FOLDER
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr auto kLook = std::chrono::milliseconds(20);

Peer* peer;
bool is_over() { return peer->stop.load() != 0; }

void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void sleep_until_over() {
  while (!is_over()) std::this_thread::sleep_for(kLook);
}

void wait_for_lock() {
  const timespec look{0, std::chrono::nanoseconds(kLook).count()};
  std::uint32_t word = 0;
  while (!is_over()) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &look, nullptr, 0);
}

/// Waits for another thread again and again, which sleeps before each answer.
void wait_for_sleeper() {
  std::mutex mutex;
  std::condition_variable changed;
  int asked = 0;
  int answered = 0;
  std::thread sleeper([&] {
    prctl(PR_SET_NAME, "sleeper");
    std::unique_lock lock(mutex);
    while (asked >= 0) {
      changed.wait(lock, [&] { return asked != answered; });
      lock.unlock();
      std::this_thread::sleep_for(kLook);
      lock.lock();
      answered = asked;
      changed.notify_all();
    }
  });
  std::unique_lock lock(mutex);
  while (!is_over()) {
    ++asked;
    changed.notify_all();
    changed.wait(lock, [&] { return asked == answered; });
  }
  asked = -1;
  changed.notify_all();
  lock.unlock();
  sleeper.join();
}

void compute() {
  prctl(PR_SET_NAME, "reward");
  std::atomic<int> counted{0};
  while (!is_over()) {
    for (int i = 0; i < 100000; ++i) counted.store(i);
  }
}

/// A child that ends when the runner says so; its output, if any is wanted, goes to `out`.
pid_t start_child(int out) {
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    if (out >= 0) dup2(out, STDOUT_FILENO);
    prctl(PR_SET_NAME, "checker");
    sleep_until_over();
    _exit(write(STDOUT_FILENO, "", 0) == 0 ? 0 : 1);
  }
  return child;
}

void wait_for_child() {
  const pid_t child = start_child(-1);
  if (waitpid(child, nullptr, 0) != child) fail("waitpid");
}

void read_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
  const pid_t child = start_child(ends[1]);
  close(ends[1]);
  char byte;
  while (read(ends[0], &byte, 1) > 0) continue;
  if (waitpid(child, nullptr, 0) != child) fail("waitpid");
}

int connect_to(const char* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connect");
  return fd;
}

/// The runner closes the connection when it is over.
void read_tcp(const char* port) {
  char byte;
  const int fd = connect_to(port);
  while (recv(fd, &byte, 1, 0) > 0) continue;
}

/// As event loops do: with a descriptor beside that wakes the loop.
void epoll_tcp(const char* port) {
  const int fd = connect_to(port);
  int self[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, self) != 0) fail("socketpair");
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  for (const int watched : {self[0], fd}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = watched;
    if (epoll_ctl(loop, EPOLL_CTL_ADD, watched, &event) != 0) fail("epoll_ctl");
  }
  epoll_event event{};
  while (epoll_wait(loop, &event, 1, 10 * kLook.count()) == 0) continue;
}

void poll_device(const char* path) {
  pollfd device{open(path, O_RDWR | O_NOCTTY | O_CLOEXEC), POLLIN, 0};
  if (device.fd < 0) fail(path);
  while (!is_over()) poll(&device, 1, kLook.count());
}

/// As a driver has them.
void open_files(const std::string& folder) {
  for (const char* name : {"/nvidia0", "/nvidia-uvm"}) {
    if (open((folder + name).c_str(), O_RDWR | O_CLOEXEC) < 0) fail(name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  const char* const more = argc > 2 ? argv[2] : "";
  constexpr unsigned long long kWorkNs = 20'000'000;
  peer = require_peer();
  Program program;
  const auto work = [&] {
    launch(program.kernel("hold"), 1, nullptr, kWorkNs);
    CHECK(cuCtxSynchronize());
  };
  work();
  if (way == "files") open_files(more);
  if (way == "sleep" || way == "files") sleep_until_over();
  if (way == "lock") wait_for_lock();
  if (way == "lock_for_sleep") wait_for_sleeper();
  if (way == "cpu") compute();
  if (way == "child") wait_for_child();
  if (way == "pipe") read_pipe();
  if (way == "tcp") read_tcp(more);
  if (way == "epoll") epoll_tcp(more);
  if (way == "device") poll_device(more);
  work();
}
