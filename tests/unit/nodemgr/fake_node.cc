#include "tests/unit/nodemgr/fake_node.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "nodemgr/clock.h"
#include "nodemgr/log.h"
#include "nodemgr/process_identity.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr::test {
namespace {

using namespace std::chrono_literals;

int connect_to(const char* path) {
  int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  set_field(address.sun_path, path);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

constexpr char kBecomeAnother[] = "become another";

/// The child: connects wherever it is told to, and hands the connection over.
[[noreturn]] void serve_orders(int orders) {
  ::prctl(PR_SET_NAME, wire::kAgentThreadName);
  char path[sizeof(sockaddr_un::sun_path)] = {};
  while (::recv(orders, path, sizeof path - 1, 0) > 0) {
    bool becomes_another = std::strcmp(path, kBecomeAnother) == 0;
    if (becomes_another) ::prctl(PR_SET_NAME, "another");
    int fd = becomes_another ? -1 : connect_to(path);
    if (!send_packet(orders, wire::Type{}, 0, {}, std::span(&fd, fd < 0 ? 0 : 1)).ok()) break;
    if (fd >= 0) ::close(fd);
    std::memset(path, 0, sizeof path);
  }
  ::_exit(0);
}

}  // namespace

wire::GpuUuid FakeGpus::uuid(int gpu) {
  wire::GpuUuid uuid{};
  pid_t pid = ::getpid();
  std::memcpy(uuid.bytes, &pid, sizeof pid);
  uuid.bytes[15] = static_cast<std::uint8_t>(gpu + 1);
  return uuid;
}

std::vector<GpuInfo> FakeGpus::gpus() {
  std::vector<GpuInfo> found;
  for (int i = 0; i < count_; ++i) {
    GpuInfo gpu;
    gpu.uuid = uuid(i);
    gpu.uuid_text = "GPU-";
    for (std::uint8_t byte : gpu.uuid.bytes) {
      char text[3];
      std::snprintf(text, sizeof text, "%02x", byte);
      gpu.uuid_text += text;
    }
    gpu.name = "PlexRL Simulated GPU";
    gpu.simulated = true;
    gpu.total_bytes = 1 << 30;
    found.push_back(gpu);
  }
  return found;
}

FakePeer::FakePeer(const std::string& socket) {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  child_ = ::fork();
  if (child_ == 0) {
    // Not the manager's locks and sockets: they must end with the manager.
    ::dup2(pair[1], 3);
    ::close_range(4, ~0u, 0);
    serve_orders(3);
  }
  ::close(pair[1]);
  orders_.reset(pair[0]);
  order_connection(socket);
}

FakePeer::FakePeer(FakePeer&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      orders_(std::move(other.orders_)),
      socket_(std::move(other.socket_)),
      last_fds_(std::move(other.last_fds_)) {}

FakePeer::~FakePeer() { kill(); }

void FakePeer::order(const std::string& what, Packet& answer) {
  ASSERT_GT(::send(orders_.get(), what.data(), what.size(), 0), 0);
  std::string why;
  Received received = Received::kNothing;
  while (received == Received::kNothing) {
    pollfd readable{orders_.get(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    received = receive_packet(orders_.get(), answer, why);
  }
  ASSERT_EQ(received, Received::kPacket) << why;
}

void FakePeer::become_another_program() {
  Packet done;
  order(kBecomeAnother, done);
}

void FakePeer::order_connection(const std::string& socket) {
  Packet packet;
  order(socket, packet);
  ASSERT_EQ(packet.fds.size(), 1u) << "the peer could not connect to " << socket;
  socket_ = std::move(packet.fds[0]);
}

void FakePeer::connect_again(const std::string& socket) { order_connection(socket); }

void FakePeer::kill() {
  socket_.reset();
  orders_.reset();
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  child_ = -1;
}

std::uint64_t FakePeer::start_ticks() const { return start_time_of(child_).value_or(0); }

void FakePeer::send_raw(const std::string& bytes) {
  ASSERT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

std::optional<Packet> FakePeer::next() {
  Packet packet;
  std::string why;
  if (receive_packet(socket_.get(), packet, why) != Received::kPacket) return std::nullopt;
  return packet;
}

bool FakePeer::is_cut_off() {
  Packet packet;
  std::string why;
  Received received = Received::kPacket;
  while (received == Received::kPacket) received = receive_packet(socket_.get(), packet, why);
  return received == Received::kEnd;
}

FakeNode::FakeNode(int gpus) : gpu_count_(gpus), values_(daemon_table()) {
  std::string pattern = ::testing::TempDir() + "/nodeXXXXXX";
  folder_ = ::mkdtemp(pattern.data());
  set_log_level("error");
  auto set = [&](const char* name, const std::string& text) {
    ASSERT_TRUE(values_.set(name, text, "test").ok());
  };
  set("socket", socket());
  set("state_dir", folder_ + "/state");
  set("lock_dir", folder_ + "/locks");
  set("node", "testnode");
  set("host.budget", "4GiB");
  start_manager();
}

FakeNode::~FakeNode() {
  manager_.reset();
  std::filesystem::remove_all(folder_);
}

void FakeNode::start_manager() {
  auto manager = Manager::start(values_, std::make_unique<FakeGpus>(gpu_count_, use_));
  ASSERT_TRUE(manager.ok()) << message_of(manager.status());
  manager_ = *std::move(manager);
  if (!helper_.empty()) manager_->options().checkpoint_helper = helper_;
}

void FakeNode::set_helper(const std::string& script) {
  helper_ = folder_ + "/helper";
  // By another name first: one that is being started can't be written to.
  std::ofstream(helper_ + ".new") << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(helper_ + ".new", std::filesystem::perms::owner_all);
  std::filesystem::rename(helper_ + ".new", helper_);
  manager_->options().checkpoint_helper = helper_;
}

void FakeNode::show(std::vector<GpuUse::Process> processes) {
  GpuUse& use = use_[0];
  use = {};
  use.knows_processes = true;
  for (const GpuUse::Process& process : processes) use.used_bytes += process.bytes;
  use.processes = std::move(processes);
}

void FakeNode::crash_manager() { manager_.reset(); }

void FakeNode::pump() {
  while (manager_->run_once(0ns) > 0) {
  }
}

void FakeNode::pump_until_readable(FakePeer& peer, std::optional<Packet>& packet) {
  pump();
  while (!(packet = peer.next())) manager_->run_once(-1ns);
}

wire::JobSubmit job_submit(std::uint64_t memory_bytes, const std::string& name) {
  wire::JobSubmit submit{};
  set_field(submit.name, name);
  submit.priority = 50;
  submit.memory_bytes = memory_bytes;
  return submit;
}

wire::Hello hello_for(const wire::JobAdmitted& job, const FakePeer& peer) {
  wire::Hello hello{};
  hello.version = wire::kVersion;
  hello.min_version = wire::kMinVersion;
  hello.features = wire::kFeatureSlabs | wire::kFeatureSharesTold | wire::kFeatureSlabsHeld;
  hello.job = job.job;
  hello.secret = job.secret;
  hello.start_time_ticks = peer.start_ticks();
  set_field(hello.command, "fake");
  return hello;
}

FakeNode::FakeJob FakeNode::admit(std::uint64_t memory_bytes, const std::string& name) {
  FakeJob job{FakePeer(socket()), {}, job_submit(memory_bytes, name)};
  job.runner.send(wire::Type::kJobSubmit, job.submitted);
  pump();
  job.admitted = job.runner.expect<wire::JobAdmitted>(wire::Type::kJobAdmitted);
  return job;
}

FakeNode::FakeProcess FakeNode::join(const FakeJob& job) {
  FakeProcess process{FakePeer(socket()), {}};
  wire::Hello hello = hello_for(job.admitted, process.peer);
  hello.features |= more_features_;
  process.peer.send(wire::Type::kHello, hello);
  pump();
  process.welcome = process.peer.expect<wire::Welcome>(wire::Type::kWelcome);
  return process;
}

FakeNode::FakeProcess FakeNode::join_with(const FakeJob& job, std::vector<int> gpus,
                                          std::uint64_t bytes) {
  FakeProcess process = join(job);
  for (int gpu : gpus) {
    process.peer.send(wire::Type::kAttachGpu,
                      wire::AttachGpu{FakeGpus::uuid(gpu), 1 << 30, 1 << 20});
    pump();
    process.peer.expect<wire::Attached>(wire::Type::kAttached);
    if (bytes != 0) charge(process, gpu, bytes);
  }
  return process;
}

void FakeNode::charge(FakeProcess& process, int gpu, std::uint64_t bytes) {
  process.peer.send(wire::Type::kCharge, wire::Charge{static_cast<std::uint32_t>(gpu), 0, bytes});
  pump();
  EXPECT_EQ(process.peer.expect<wire::Charged>(wire::Type::kCharged).granted, 1u);
}

wire::Grant FakeNode::run(FakeProcess& process, std::uint64_t gpus) {
  process.peer.send(wire::Type::kWantLease, wire::WantLease{gpus, 0}, 0);
  pump();
  auto grant = process.peer.expect<wire::Grant>(wire::Type::kGrant);
  if ((grant.flags & wire::kGrantRunNow) == 0) {
    wire::Loaded loaded{};
    loaded.epoch = grant.epoch;
    process.peer.send(wire::Type::kLoaded, loaded, 0);
    pump();
    EXPECT_EQ(process.peer.expect<wire::LeaseRef>(wire::Type::kRun).epoch, grant.epoch);
  }
  return grant;
}

void FakeNode::report_idle(FakeProcess& process) {
  wire::Activity activity{};
  activity.count = 1;
  activity.at_ns[0] = static_cast<std::uint64_t>(boot_now().count());
  process.peer.send(wire::Type::kActivity, activity, 0);
  pump();
}

}  // namespace plexrl::nodemgr::test
