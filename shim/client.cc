#include "shim/client.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "shim/boottime.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "client";
constexpr std::size_t kPageBytes = 4096;
/// When a manager has not answered a hello for so long the user is told.
constexpr int kSayWaitingMs = 15'000;

thread_local bool is_agent_thread = false;

bool parse_hex(const char* text, wire::Id128* id) noexcept {
  if (text == nullptr || std::strlen(text) != 32) return false;
  std::uint64_t halves[2] = {};
  for (int i = 0; i < 32; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return false;
    halves[i / 16] = halves[i / 16] << 4 | static_cast<std::uint64_t>(digit);
  }
  *id = {halves[0], halves[1]};
  return true;
}

std::size_t read_file(const char* path, char* buffer, std::size_t bytes) noexcept {
  const ScopedFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return 0;
  const ssize_t got = ::read(fd.get(), buffer, bytes - 1);
  buffer[got > 0 ? got : 0] = '\0';
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

/// Field 22 of /proc/self/stat; the second field may hold spaces and ends at the last ')'.
std::uint64_t start_time_ticks() noexcept {
  char line[1024];
  if (read_file("/proc/self/stat", line, sizeof line) == 0) return 0;
  const char* at = std::strrchr(line, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

void read_command(char (&command)[64]) noexcept {
  const std::size_t bytes = read_file("/proc/self/comm", command, sizeof command);
  if (bytes != 0 && command[bytes - 1] == '\n') command[bytes - 1] = '\0';
}

/// False: the connection has ended.
bool receive_answer(Connection& connection, Packet* answer) {
  for (bool said = false;;) {
    switch (connection.receive(answer)) {
      case Connection::Received::kPacket:
        return true;
      case Connection::Received::kClosed:
        return false;
      case Connection::Received::kNothing:
        break;
    }
    if (connection.wait_readable(said ? -1 : kSayWaitingMs)) continue;
    log_user("waiting for the node manager, which is there and does not answer yet");
    said = true;
  }
}

void* map_page(const ScopedFd& fd, int protection) noexcept {
  if (!fd.valid()) return nullptr;
  void* const page = ::mmap(nullptr, kPageBytes, protection, MAP_SHARED, fd.get(), 0);
  return page == MAP_FAILED ? nullptr : page;
}

}  // namespace

std::optional<Identity> identity_from_environment() {
  Identity identity;
  if (!parse_hex(std::getenv("PLEXRL_JOB_ID"), &identity.job)) return std::nullopt;
  if (!parse_hex(std::getenv("PLEXRL_JOB_SECRET"), &identity.secret)) return std::nullopt;
  return identity;
}

void Client::set_agent_thread() noexcept { is_agent_thread = true; }

Client::Handshake Client::connect(const std::function<void(Connection&)>* resume,
                                  wire::Error* why) {
  *why = {};
  // Nobody else may send before the handshake is over, so it has a connection of its own.
  Connection fresh;
  fresh.attach(dial_());
  if (!fresh.is_open()) return Handshake::kNobody;
  wire::Hello hello{};
  hello.version = wire::kVersion;
  hello.min_version = wire::kMinVersion;
  if (resume != nullptr) hello.flags = wire::kHelloResume;
  hello.features = wire::kFeatureSlabs | wire::kFeaturePrefetch | wire::kFeatureCommunicators |
                   wire::kFeatureSharesTold | wire::kFeatureSlabsHeld | wire::kFeatureDisk;
  hello.job = identity_.job;
  hello.secret = identity_.secret;
  hello.start_time_ticks = start_time_ticks();
  hello.session = resume != nullptr ? welcome_.session : 0;
  read_command(hello.command);
  Packet answer;
  if (!fresh.send(wire::Type::kHello, hello, 1) || !receive_answer(fresh, &answer)) {
    return Handshake::kLost;
  }
  const auto* const welcome = answer.as<wire::Welcome>();
  const auto* const error = answer.as<wire::Error>();
  if (answer.type == wire::Type::kWelcome && welcome != nullptr && map_pages(answer)) {
    welcome_ = *welcome;
    if (resume != nullptr) (*resume)(fresh);
    if (!fresh.flush() || fresh.wants_to_send()) return Handshake::kLost;
    connection_.attach(fresh.release());
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    return Handshake::kAdmitted;
  }
  if (error != nullptr) {
    *why = *error;
    why->text[sizeof why->text - 1] = '\0';
  } else {
    std::strcpy(why->text, "the node manager's answer is malformed");
  }
  return Handshake::kRefused;
}

bool Client::map_pages(Packet& welcome) {
  auto* const control = static_cast<const wire::ControlPage*>(map_page(welcome.fds[0], PROT_READ));
  auto* const own =
      static_cast<wire::ActivityPage*>(map_page(welcome.fds[1], PROT_READ | PROT_WRITE));
  if (control == nullptr || own == nullptr) return false;
  // Pages of an earlier manager stay mapped: some thread may be reading them.
  control_ = control;
  activity_ = own;
  return true;
}

void Client::disconnect() {
  connection_.close();
  postponed_.clear();  // of a manager that is no more
  fail_waiting();
}

void Client::fail_waiting() {
  const std::lock_guard lock(mutex_);
  for (auto& [request, waiting] : waiting_) waiting->done = true;
  waiting_.clear();
  changed_.notify_all();
}

void Client::wait_connected() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return connection_.is_open(); });
}

std::unique_ptr<Packet> Client::ask(wire::Type type, const void* question, std::size_t bytes) {
  flush_uncharges();  // first what was freed, then what is wanted
  Waiting waiting;
  std::uint64_t request = 0;
  {
    const std::lock_guard lock(mutex_);
    request = next_request_++;
    if (!is_agent_thread) waiting_.emplace(request, &waiting);
  }
  const bool sent = connection_.send(type, question, bytes, request);
  if (is_agent_thread) return sent ? pump_for(request) : nullptr;
  std::unique_lock lock(mutex_);
  if (!sent) {
    waiting_.erase(request);
    return nullptr;
  }
  changed_.wait(lock, [&] { return waiting.done; });
  return std::move(waiting.answer);
}

std::uint64_t Client::begin_ask(wire::Type type, const void* question, std::size_t bytes, int fd) {
  std::uint64_t request = 0;
  {
    const std::lock_guard lock(mutex_);
    request = next_request_++;
    waiting_.emplace(request, &begun_[request]);
  }
  if (connection_.send_with_fd_patiently(type, question, bytes, fd, request)) return request;
  const std::lock_guard lock(mutex_);
  waiting_.erase(request);
  begun_.erase(request);
  return 0;
}

std::unique_ptr<Packet> Client::finish_ask(std::uint64_t request) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      const auto it = begun_.find(request);
      if (it == begun_.end()) return nullptr;
      if (it->second.done) {
        auto answer = std::move(it->second.answer);
        begun_.erase(it);
        return answer;
      }
    }
    bool closed = false;
    auto packet = receive_raw(&closed);
    if (closed) {  // the loop will meet the same and reconnect
      const std::lock_guard lock(mutex_);
      waiting_.erase(request);
      begun_.erase(request);
      return nullptr;
    }
    if (packet == nullptr) {
      connection_.wait_readable(-1);
    } else if (!hand_out(&packet)) {
      postponed_.push_back(std::move(packet));
    }
  }
}

std::unique_ptr<Packet> Client::pump_for(std::uint64_t request) {
  while (true) {
    bool closed = false;
    auto packet = receive_raw(&closed);
    if (closed) return nullptr;  // the loop will meet the same and reconnect
    if (packet == nullptr) {
      connection_.wait_readable(-1);
      continue;
    }
    if (packet->request == request) return packet;
    if (!hand_out(&packet)) postponed_.push_back(std::move(packet));
  }
}

std::unique_ptr<Packet> Client::receive_raw(bool* closed) {
  auto packet = std::make_unique<Packet>();
  switch (connection_.receive(packet.get())) {
    case Connection::Received::kPacket:
      return packet;
    case Connection::Received::kClosed:
      *closed = true;
      return nullptr;
    case Connection::Received::kNothing:
      break;
  }
  return nullptr;
}

bool Client::hand_out(std::unique_ptr<Packet>* packet) {
  if ((*packet)->request == 0) return false;
  const std::lock_guard lock(mutex_);
  const auto it = waiting_.find((*packet)->request);
  if (it == waiting_.end()) return false;
  it->second->answer = std::move(*packet);
  it->second->done = true;
  waiting_.erase(it);
  changed_.notify_all();
  return true;
}

std::unique_ptr<Packet> Client::next(bool* closed) {
  *closed = false;
  if (!postponed_.empty()) {
    auto packet = std::move(postponed_.front());
    postponed_.pop_front();
    return packet;
  }
  if (!connection_.is_open()) return nullptr;
  while (auto packet = receive_raw(closed)) {
    if (!hand_out(&packet)) return packet;
  }
  return nullptr;
}

void Client::uncharge(std::uint32_t gpu, std::uint64_t bytes, bool unpageable) {
  const std::lock_guard lock(uncharge_mutex_);
  uncharges_[{gpu, unpageable}] += bytes;
  uncharged_.fetch_add(bytes, std::memory_order_relaxed);
}

void Client::flush_uncharges() {
  const std::lock_guard lock(uncharge_mutex_);
  if (uncharges_.empty()) return;
  // Without a connection they are dropped: kResumeState tells the sums anew.
  for (const auto& [key, bytes] : uncharges_) {
    wire::Charge charge{};
    charge.gpu = key.first;
    charge.unpageable = key.second ? 1 : 0;
    charge.bytes = bytes;
    connection_.send(wire::Type::kUncharge, charge);
  }
  uncharges_.clear();
  uncharged_.store(0, std::memory_order_relaxed);
}

std::optional<SlabSource::Slab> Client::request(std::size_t bytes) {
  if ((welcome_.features & wire::kFeatureSlabs) == 0) {
    Slab plain;
    plain.bytes = bytes;
    return plain;
  }
  const auto answer = ask(wire::Type::kSlabRequest, wire::SlabRequest{bytes});
  if (answer == nullptr || answer->type != wire::Type::kSlab) return std::nullopt;
  const auto* const slab = answer->as<wire::Slab>();
  if (slab == nullptr || !answer->fds[0].valid()) return std::nullopt;
  PLEXRL_DEBUG(kFile, "slab id=%lu bytes=%lu", static_cast<unsigned long>(slab->id),
               static_cast<unsigned long>(slab->bytes));
  return Slab{slab->id, slab->bytes, std::move(answer->fds[0])};
}

void Client::give_back(std::uint64_t id, std::size_t bytes) {
  connection_.send(wire::Type::kSlabReturn, wire::Slab{id, bytes});
}

}  // namespace plexrl::shim
