#include "shim/registrations.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shim/gate.h"
#include "shim/process.h"

namespace plexrl::shim {

void Registrations::add(const Key& key, Holds holds) noexcept {
  if (holds.empty()) return;
  const std::lock_guard lock(mutex_);
  try {
    kept_.emplace(key, std::move(holds));
  } catch (...) {  // no memory: as the header says
  }
}

Registrations::Holds Registrations::take(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto it = kept_.find(key);
  if (it == kept_.end()) return {};
  Holds holds = std::move(it->second);
  kept_.erase(it);
  return holds;
}

std::vector<Registrations::Taken> Registrations::take_all(const void* owner) {
  const std::lock_guard lock(mutex_);
  std::vector<Taken> taken;
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (it->first.owner == owner) {
      taken.push_back({it->first, std::move(it->second)});
      it = kept_.erase(it);
    } else {
      ++it;
    }
  }
  return taken;
}

void Registrations::add_pending(std::uint64_t thread, Window window) {
  const std::lock_guard lock(mutex_);
  pending_.emplace(thread, std::move(window));
}

std::vector<Registrations::Window> Registrations::take_pending(std::uint64_t thread) {
  const std::lock_guard lock(mutex_);
  std::vector<Window> taken;
  const auto [first, last] = pending_.equal_range(thread);
  for (auto it = first; it != last; ++it) taken.push_back(std::move(it->second));
  pending_.erase(first, last);
  return taken;
}

namespace {

/// One hold for each allocation or mapping that the bytes lie in. False: there is no room for one.
bool hold_pieces(Process& process, std::uint64_t address, std::size_t bytes,
                 const PinReason& reason, Registrations::Holds* holds) {
  for (const std::uint64_t end = address + bytes; address < end;) {
    const auto memory = process.backing(address);
    if (!memory) break;
    const std::size_t ahead = memory->bytes - (memory->address - memory->start);
    const std::size_t piece = std::min<std::uint64_t>(ahead, end - address);
    holds->reserve(holds->size() + 1);
    Pins::Held held{};
    switch (process.pins.hold(memory->device, memory->address, piece, reason, &held)) {
      case Pins::Hold::kHeld:
        holds->push_back(held);
        break;
      case Pins::Hold::kNoRoom:
        return false;
      case Pins::Hold::kNotOwned:
        note_exclusive(reason.text);
        break;
    }
    address += piece;
  }
  return true;
}

}  // namespace

std::optional<Registrations::Holds> hold_registered(Process& process, std::uint64_t address,
                                                    std::size_t bytes, const PinReason& reason) {
  if (bytes == 0 || !process.backing(address)) return Registrations::Holds{};
  const int saved_errno = errno;
  Registrations::Holds holds;
  bool has_room = true;
  try {
    const InsideGate inside;
    has_room = hold_pieces(process, address, bytes, reason, &holds);
  } catch (...) {  // no host memory
    has_room = false;
  }
  if (!has_room) {
    let_go(process, holds);
    errno = saved_errno;
    return std::nullopt;
  }
  process.agent.notify();
  errno = saved_errno;
  return holds;
}

void let_go(Process& process, const Registrations::Holds& holds) noexcept {
  if (holds.empty()) return;
  const int saved_errno = errno;
  for (const Pins::Held& held : holds) process.pins.let_go(held);
  process.agent.notify();
  errno = saved_errno;
}

}  // namespace plexrl::shim
