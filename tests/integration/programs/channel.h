#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace plexrl::integration {

/// A child that runs the same program with "child" and the number of its end of a socket as
/// arguments; both ends pass values and descriptors. Whatever fails ends the process.
class Channel {
 public:
  /// The child's end.
  explicit Channel(const char* argument) : fd_(std::atoi(argument)) {}

  /// Starts a child.
  static Channel to_child(const char* role = "child") {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      char number[16];
      std::snprintf(number, sizeof number, "%d", ends[1]);
      execl("/proc/self/exe", "program", role, number, static_cast<char*>(nullptr));
      _exit(127);
    }
    close(ends[1]);
    Channel channel(ends[0]);
    channel.child_ = child;
    return channel;
  }

  /// The same, of a child that is not part of this job, if this is one: its environment says
  /// nothing of it, and its work is not in the device log. `plexrl_run`: that program starts the
  /// child, so that it is in a job of its own.
  static Channel to_stranger(const char* role, const char* plexrl_run = nullptr) {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      leave_job();
      char number[16];
      std::snprintf(number, sizeof number, "%d", ends[1]);
      char program[4096] = {};
      require(readlink("/proc/self/exe", program, sizeof program - 1) > 0, "readlink");
      if (plexrl_run != nullptr) {
        execl(plexrl_run, plexrl_run, "--require", "--", program, role, number,
              static_cast<char*>(nullptr));
      }
      execl(program, program, role, number, static_cast<char*>(nullptr));
      _exit(127);
    }
    close(ends[1]);
    Channel channel(ends[0]);
    channel.child_ = child;
    return channel;
  }
  /// What is sent is lost.
  static Channel to_nobody() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    return Channel(ends[0]);
  }

  template <typename T>
  void send(const T& value) {
    require(write(fd_, &value, sizeof value) == static_cast<ssize_t>(sizeof value), "send");
  }
  template <typename T>
  T receive() {
    T value;
    require(read(fd_, &value, sizeof value) == static_cast<ssize_t>(sizeof value), "receive");
    return value;
  }

  void send_fd(int fd) {
    msghdr message = with_control();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
    require(sendmsg(fd_, &message, 0) == 1, "send_fd");
  }
  int receive_fd() {
    const int fd = try_receive_fd();
    require(fd >= 0, "receive_fd");
    return fd;
  }
  /// -1: the other side has ended.
  int try_receive_fd() {
    msghdr message = with_control();
    if (recvmsg(fd_, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    require(part != nullptr, "receive_fd");
    int fd;
    std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
    return fd;
  }

  /// The other side has printed all it prints before it says so.
  void tell() {
    std::fflush(stdout);
    send('x');
  }
  void wait() { receive<char>(); }

  pid_t child() const { return child_; }
  /// The child dies by itself.
  void wait_for_end() {
    int status;
    require(waitpid(child_, &status, 0) == child_, "waitpid");
  }
  void kill_child() {
    require(kill(child_, SIGKILL) == 0, "kill");
    int status;
    require(waitpid(child_, &status, 0) == child_, "waitpid");
  }
  void join_child() {
    int status = 0;
    require(waitpid(child_, &status, 0) == child_ && status == 0, "the child");
  }

 private:
  explicit Channel(int fd) : fd_(fd) {}

  static void leave_job() {
    for (const char* name : {"LD_PRELOAD", "PLEXRL_JOB_ID", "PLEXRL_JOB_SECRET", "PLEXRL_JOB_NAME",
                             "PLEXRL_MEMORY", "PLEXRL_EXPORT", "PLEXRL_TEST_PEER"}) {
      unsetenv(name);
    }
    const char* const spec = getenv("PLEXRL_SIMGPU");
    if (spec == nullptr) return;
    std::string rest = spec;
    const std::size_t log = rest.find("log=");
    if (log == std::string::npos) return;
    rest.erase(log, rest.find(',', log) - log);
    setenv("PLEXRL_SIMGPU", rest.c_str(), 1);
  }

  static void require(bool done, const char* what) {
    if (done) return;
    std::fprintf(stderr, "%d: %s failed\n", getpid(), what);
    std::_Exit(1);
  }
  msghdr with_control() {
    msghdr message = {};
    part_ = {&byte_, 1};
    message.msg_iov = &part_;
    message.msg_iovlen = 1;
    message.msg_control = control_;
    message.msg_controllen = sizeof control_;
    return message;
  }

  int fd_;
  pid_t child_ = 0;
  char byte_ = 'f';
  iovec part_ = {};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
};

}  // namespace plexrl::integration
