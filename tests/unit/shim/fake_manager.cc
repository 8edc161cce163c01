#include "tests/unit/shim/fake_manager.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace plexrl::shim::testing {
namespace {

ScopedFd make_memfd(std::size_t bytes) {
  ScopedFd fd(::memfd_create("fake-manager", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return {};
  return fd;
}

}  // namespace

FakeManager::FakeManager() : thread_([this] { serve(); }) {}

FakeManager::~FakeManager() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (connection_.is_open()) ::shutdown(connection_.fd(), SHUT_RDWR);
    changed_.notify_all();
  }
  thread_.join();
}

ScopedFd FakeManager::dial() {
  const std::lock_guard lock(mutex_);
  int ends[2] = {-1, -1};
  if (!is_up_ || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  connection_.attach(ScopedFd(ends[0]));
  changed_.notify_all();
  return ScopedFd(ends[1]);
}

void FakeManager::adopt(ScopedFd socket) {
  const std::lock_guard lock(mutex_);
  connection_.attach(std::move(socket));
  changed_.notify_all();
}

void FakeManager::die() {
  const std::lock_guard lock(mutex_);
  is_up_ = false;
  ++generation;
  if (connection_.is_open()) ::shutdown(connection_.fd(), SHUT_RDWR);
}

void FakeManager::start() {
  const std::lock_guard lock(mutex_);
  is_up_ = true;
}

void FakeManager::serve() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || connection_.is_open(); });
      if (stopped_) return;
    }
    connection_.wait_readable(-1);
    auto packet = std::make_unique<Packet>();
    switch (connection_.receive(packet.get())) {
      case Connection::Received::kPacket:
        answer(std::move(packet));
        break;
      case Connection::Received::kClosed: {
        const std::lock_guard lock(mutex_);
        connection_.close();
        break;
      }
      case Connection::Received::kNothing:
        break;
    }
  }
}

void FakeManager::answer(std::unique_ptr<Packet> packet) {
  const std::lock_guard lock(mutex_);
  switch (packet->type) {
    case wire::Type::kHello:
      hello_ = *packet->as<wire::Hello>();
      if (is_silent) break;
      if (refuses) {
        wire::Error error{};
        error.code = refusal;
        std::strcpy(error.text, "the job's secret is wrong");
        connection_.send(wire::Type::kRefused, error, packet->request);
      } else {
        welcome(*packet);
      }
      return;
    case wire::Type::kAttachGpu:
      if (evicts_before_attached) {
        connection_.send(wire::Type::kEvict, *std::exchange(evicts_before_attached, {}), 99);
      }
      connection_.send(wire::Type::kAttached, wire::Attached{0, 0, promised}, packet->request);
      return;
    case wire::Type::kCharge: {
      const auto* const charge = packet->as<wire::Charge>();
      const bool stays = charge->unpageable != 0;
      const bool granted = used_ + charge->bytes <= promised && !(stays && refuses_pins);
      if (granted) used_ += charge->bytes;
      if (granted && stays) unpageable_ += charge->bytes;
      connection_.send(wire::Type::kCharged, wire::Charged{granted ? 1u : 0u, 0, promised, used_},
                       packet->request);
      if (!granted) ++charges_refused;
      return;
    }
    case wire::Type::kUncharge:
      used_ -= packet->as<wire::Charge>()->bytes;
      if (packet->as<wire::Charge>()->unpageable != 0) {
        unpageable_ -= packet->as<wire::Charge>()->bytes;
      }
      changed_.notify_all();
      return;
    case wire::Type::kPin: {
      const auto* const charge = packet->as<wire::Charge>();
      if (charge->unpageable != 0 && delays_pins) break;
      if (charge->unpageable == 0) unpageable_ -= charge->bytes;
      if (charge->unpageable != 0 && !refuses_pins) unpageable_ += charge->bytes;
      const bool granted = charge->unpageable == 0 || !refuses_pins;
      if (packet->request == 0) return;
      if (charge->unpageable == 0) ++asked_to_unpin;
      connection_.send(wire::Type::kCharged, wire::Charged{granted ? 1u : 0u, 0, promised, used_},
                       packet->request);
      return;
    }
    case wire::Type::kExport:
      if (packet->request == 0) break;  // one that is told again
      connection_.send(wire::Type::kExported, wire::Exported{next_export_++, {5, 6}},
                       packet->request);
      return;
    case wire::Type::kImport: {
      if (packet->request == 0) break;
      const auto it = importable.find(packet->as<wire::Import>()->id);
      if (it != importable.end()) {
        connection_.send(wire::Type::kImported, it->second, packet->request);
      } else {
        connection_.send(wire::Type::kError, wire::Error{wire::kErrorUnknownType, 0, {}},
                         packet->request);
      }
      return;
    }
    case wire::Type::kExportEnded:
      connection_.send(has_importers ? wire::Type::kExportEnded : wire::Type::kExportUnused,
                       *packet->as<wire::ExportRef>(), packet->request);
      return;
    case wire::Type::kSlabRequest: {
      const std::uint64_t bytes = packet->as<wire::SlabRequest>()->bytes;
      const ScopedFd fd = make_memfd(bytes);
      const wire::Slab slab{next_slab_++, bytes};
      send_with_fds(wire::Type::kSlab, &slab, sizeof slab, packet->request, {fd.get()});
      return;
    }
    case wire::Type::kCommJoin:
    case wire::Type::kCommStays:
      if (packet->request != 0) {
        connection_.send(wire::Type::kCommJoined, *packet->as<wire::CommRef>(), packet->request);
      }
      break;
    default:
      break;
  }
  inbox_.push_back(std::move(packet));
  changed_.notify_all();
}

void FakeManager::welcome(const Packet& packet) {
  wire::Welcome body{};
  body.version = wire::kVersion;
  body.features = features;
  body.session = 77;
  body.generation = generation;
  body.grace_ns = grace_ns;
  body.drain_budget_ns = drain_budget_ns;
  body.chunk_bytes = chunk_bytes;
  const ScopedFd control = make_memfd(4096);
  const ScopedFd activity = make_memfd(4096);
  const std::size_t bytes = sends_malformed_welcome ? sizeof body - 8 : sizeof body;
  send_with_fds(wire::Type::kWelcome, &body, bytes, packet.request,
                {control.get(), activity.get()});
}

void FakeManager::send_with_fds(wire::Type type, const void* body, std::size_t bytes,
                                std::uint64_t request, const std::vector<int>& fds) {
  wire::Header header = wire::header_of(type, bytes, request);
  iovec parts[2] = {{&header, sizeof header}, {const_cast<void*>(body), bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * wire::kMaxPacketFds)] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  ::sendmsg(connection_.fd(), &message, MSG_NOSIGNAL);
}

void FakeManager::send_raw(const void* bytes, std::size_t count) {
  ::send(connection_.fd(), bytes, count, MSG_NOSIGNAL);
}

std::unique_ptr<Packet> FakeManager::wait_for(wire::Type type) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto it = std::find_if(inbox_.begin(), inbox_.end(),
                                 [&](const auto& packet) { return packet->type == type; });
    if (it != inbox_.end()) {
      auto packet = std::move(*it);
      inbox_.erase(it);
      return packet;
    }
    changed_.wait(lock);
  }
}

bool FakeManager::has(wire::Type type) {
  const std::lock_guard lock(mutex_);
  return std::any_of(inbox_.begin(), inbox_.end(),
                     [&](const auto& packet) { return packet->type == type; });
}

wire::Epoch FakeManager::grant(std::uint32_t flags) {
  wire::Grant grant{};
  grant.epoch = {generation, ++counter_};
  grant.gang = 1;
  grant.gpus = 1;
  grant.flags = flags;
  send(wire::Type::kGrant, grant);
  return grant.epoch;
}

wire::Epoch FakeManager::grant_and_run() {
  const wire::Epoch epoch = grant();
  wait_for(wire::Type::kLoaded);
  send(wire::Type::kRun, wire::LeaseRef{epoch});
  return epoch;
}

std::uint64_t FakeManager::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::uint64_t FakeManager::unpageable() const {
  const std::lock_guard lock(mutex_);
  return unpageable_;
}

wire::Hello FakeManager::last_hello() const {
  const std::lock_guard lock(mutex_);
  return hello_;
}

}  // namespace plexrl::shim::testing
