#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tools/simgpu/driver/machine.h"
#include "tools/simgpu/driver/pool_file.h"

namespace plexrl::simgpu {

/// A simulated machine of its own for each test: a name that no other test has, and a folder for
/// its state that goes with the test.
class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    char path[] = "/tmp/plexrl-simgpu-test-XXXXXX";
    folder_ = mkdtemp(path);
    setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    name_ = "test-" + std::filesystem::path(folder_).filename().string().substr(20);
    spec_.name = name_;
    spec_.memory_bytes = 64ull << 20;
    spec_.free_delay_ns = 0;
    spec_.vmm_ns = 0;
  }
  ~MachineTest() override {
    std::filesystem::remove_all(folder_);
    remove_abandoned_pool_files();  // what killed children left
  }
  /// Whether /dev/shm has memory of this machine.
  bool has_memory() const {
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      if (entry.path().filename().string().find("." + name_ + ".") != std::string::npos)
        return true;
    }
    return false;
  }

  std::unique_ptr<Machine> open(const Spec& spec) {
    std::string error;
    std::unique_ptr<Machine> machine = Machine::open(spec, &error);
    EXPECT_NE(machine, nullptr) << error;
    return machine;
  }
  std::unique_ptr<Machine> open() { return open(spec_); }
  std::unique_ptr<Machine> observe() {
    std::string error;
    std::unique_ptr<Machine> machine = Machine::observe(name_, &error);
    EXPECT_EQ(error, "");
    return machine;
  }

  std::string folder_;
  std::string name_;
  Spec spec_;
};

/// A child process that runs `body` and stays until it is killed or told to leave.
class Child {
 public:
  /// Returns after `body` has returned in the child; `succeeded` is what it returned.
  explicit Child(const std::function<bool()>& body) {
    int to_parent[2];
    int to_child[2];
    if (pipe(to_parent) != 0 || pipe(to_child) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(to_parent[0]);
      close(to_child[1]);
      const char result = body() ? 'y' : 'n';
      char ignored;
      if (write(to_parent[1], &result, 1) != 1 || read(to_child[0], &ignored, 1) > 1) _exit(1);
      _exit(0);
    }
    close(to_parent[1]);
    close(to_child[0]);
    char result = 'n';
    succeeded_ = read(to_parent[0], &result, 1) == 1 && result == 'y';
    close(to_parent[0]);
    leave_ = to_child[1];
  }
  ~Child() { end(SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool succeeded() const { return succeeded_; }
  pid_t pid() const { return pid_; }
  /// Kills it and waits until it has gone.
  void kill_now() { end(SIGKILL); }

 private:
  void end(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    close(leave_);
    pid_ = 0;
  }
  pid_t pid_ = 0;
  int leave_ = -1;
  bool succeeded_ = false;
};

}  // namespace plexrl::simgpu
