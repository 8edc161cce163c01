#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nodemgr/manager.h"
#include "nodemgr/packet.h"

namespace plexrl::nodemgr::test {

/// What the fake driver shows on each GPU; by default nothing about processes.
using FakeUse = std::map<int, GpuUse>;

/// GPUs of 1 GiB that no driver knows, under UUIDs of this test process.
class FakeGpus final : public GpuProbe {
 public:
  FakeGpus(int count, const FakeUse& use) : count_(count), use_(use) {}
  static wire::GpuUuid uuid(int gpu);
  std::vector<GpuInfo> gpus() override;
  std::optional<GpuUse> use(int gpu) override {
    auto it = use_.find(gpu);
    return it == use_.end() ? GpuUse{} : it->second;
  }

 private:
  int count_;
  const FakeUse& use_;
};

/// A process of its own that has connected and then sleeps; its end of the connection is used here.
/// So the kernel vouches for its pid, and it can be killed. Its thread has the agent's name, as one
/// thread of a real process has.
class FakePeer {
 public:
  explicit FakePeer(const std::string& socket);
  FakePeer(FakePeer&& other) noexcept;
  ~FakePeer();

  template <typename Body>
  void send(wire::Type type, const Body& body, std::uint64_t request = 1) {
    ASSERT_TRUE(send_packet(socket_.get(), type, request, std::as_bytes(std::span(&body, 1))).ok());
  }
  template <typename Body>
  void send_with_fd(wire::Type type, const Body& body, int fd, std::uint64_t request = 0) {
    int fds[] = {fd};
    ASSERT_TRUE(
        send_packet(socket_.get(), type, request, std::as_bytes(std::span(&body, 1)), fds).ok());
  }
  void send_empty(wire::Type type) { ASSERT_TRUE(send_packet(socket_.get(), type, 0, {}).ok()); }
  bool try_send(wire::Type type, std::span<const std::byte> body) {
    return send_packet(socket_.get(), type, 1, body).ok();
  }
  void send_raw(const std::string& bytes);

  /// The next packet that has arrived; none: nothing has, or the manager has hung up.
  std::optional<Packet> next();
  /// The next packet, which must be of this type.
  template <typename Body>
  Body expect(wire::Type type) {
    std::optional<Packet> packet = next();
    Body body{};
    EXPECT_TRUE(packet.has_value()) << "nothing came, wanted type " << static_cast<int>(type);
    if (!packet) return body;
    EXPECT_EQ(static_cast<int>(packet->type), static_cast<int>(type));
    EXPECT_TRUE(packet->read(body));
    last_fds_ = std::move(packet->fds);
    return body;
  }
  bool is_cut_off();
  void connect_again(const std::string& socket);
  void disconnect() { socket_.reset(); }
  /// What the manager sees of an exec: the agent's thread has gone, the process lives. (The
  /// connection goes too: `disconnect`.)
  void become_another_program();
  void kill();  ///< and waits for its end
  std::uint64_t start_ticks() const;
  pid_t pid() const { return child_; }
  const std::vector<ScopedFd>& last_fds() const { return last_fds_; }
  void drop_fds() { last_fds_.clear(); }

 private:
  void order(const std::string& what, Packet& answer);
  void order_connection(const std::string& socket);
  pid_t child_ = -1;
  ScopedFd orders_;  ///< to the child: a path to connect to; back comes the connection
  ScopedFd socket_;
  std::vector<ScopedFd> last_fds_;
};

/// A manager with fake GPUs in a folder of its own. Nothing here sleeps: `pump` serves what is
/// ready.
class FakeNode : public ::testing::Test {
 protected:
  explicit FakeNode(int gpus = 1);
  ~FakeNode() override;

  void start_manager();
  /// As a crash: nothing is said to anybody, the journal stays.
  void crash_manager();
  void pump();
  /// Serves until the peer has something to read.
  void pump_until_readable(FakePeer& peer, std::optional<Packet>& packet);

  struct FakeJob {
    FakePeer runner;
    wire::JobAdmitted admitted;
    wire::JobSubmit submitted;
  };
  FakeJob admit(std::uint64_t memory_bytes, const std::string& name = "job");
  struct FakeProcess {
    FakePeer peer;
    wire::Welcome welcome;
  };
  FakeProcess join(const FakeJob& job);
  /// Joins, uses these GPUs, and is charged so many bytes on each.
  FakeProcess join_with(const FakeJob& job, std::vector<int> gpus, std::uint64_t bytes);
  void charge(FakeProcess& process, int gpu, std::uint64_t bytes);
  /// Wants a lease, gets it, loads, and runs.
  wire::Grant run(FakeProcess& process, std::uint64_t gpus = 1);
  void report_idle(FakeProcess& process);

  std::string folder_;
  std::string socket() const { return folder_ + "/nodemgr.sock"; }
  int gpu_count_;
  FakeUse use_;
  /// From now on the driver shows these processes, by pid, and their bytes on GPU 0.
  void show(std::vector<GpuUse::Process> processes);
  settings::Values values_;
  /// Instead of plexrl-checkpoint: a shell script, from now on, and of the next manager too.
  void set_helper(const std::string& script);
  std::string helper_;               ///< "": the real one
  std::uint64_t more_features_ = 0;  ///< of the processes that join from now on
  std::unique_ptr<Manager> manager_;
};

wire::JobSubmit job_submit(std::uint64_t memory_bytes, const std::string& name);
wire::Hello hello_for(const wire::JobAdmitted& job, const FakePeer& peer);

}  // namespace plexrl::nodemgr::test
