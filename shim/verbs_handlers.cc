#include <cerrno>
#include <utility>

#include "interpose/handlers.h"
#include "interpose/verbs.h"
#include "shim/process.h"
#include "shim/registrations.h"

/// Memory that is registered with a NIC (ibv_reg_mr(3)): what of it is ours stays in HBM, where the
/// NIC has been told that it is, until it is deregistered. Memory of the host passes.

namespace plexrl::shim {
namespace {

constexpr PinReason kReason = {"registered with a NIC", wire::MemoryKind::kRdma};

/// Functions of libibverbs call each other by their exported names, which are ours.
constinit thread_local bool is_inside = false;

struct Inside {
  Inside() noexcept { is_inside = true; }
  ~Inside() { is_inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

Registrations::Key key_of(const ibv_mr* region) {
  return {Registrations::Kind::kNic, nullptr, region};
}

std::optional<Registrations::Holds> hold(Process& process, void* address, std::size_t bytes) {
  try {
    return hold_registered(process, reinterpret_cast<std::uint64_t>(address), bytes, kReason);
  } catch (...) {
    return std::nullopt;  // the host has no memory left
  }
}

template <typename Call>
ibv_mr* register_memory(void* address, std::size_t bytes, Call call) noexcept {
  Process* const process = Process::started();
  if (process == nullptr || is_inside) return call();
  auto holds = hold(*process, address, bytes);
  if (!holds) {
    errno = ENOMEM;
    return nullptr;
  }
  const Inside inside;
  ibv_mr* const region = call();
  if (region == nullptr) {
    let_go(*process, *holds);
    return nullptr;
  }
  // A region of this name that is still known was given back where we did not see it.
  let_go(*process, process->registrations.take(key_of(region)));
#ifdef PLEXRL_MUTANT_NIC  // test builds only: the suite must notice that a NIC writes somewhere
                          // else
  let_go(*process, std::exchange(*holds, {}));
#endif
  process->registrations.add(key_of(region), std::move(*holds));
  return region;
}

}  // namespace

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) noexcept {
  return register_memory(addr, length, [&] { return verbs.ibv_reg_mr(pd, addr, length, access); });
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) noexcept {
  return register_memory(addr, length,
                         [&] { return verbs.ibv_reg_mr_iova(pd, addr, length, iova, access); });
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                         unsigned int access) noexcept {
  return register_memory(addr, length,
                         [&] { return verbs.ibv_reg_mr_iova2(pd, addr, length, iova, access); });
}

int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                 int access) noexcept {
  const auto call = [&] { return verbs.ibv_rereg_mr(mr, flags, pd, addr, length, access); };
  Process* const process = Process::started();
  if (process == nullptr || is_inside || (flags & IBV_REREG_MR_CHANGE_TRANSLATION) == 0) {
    return call();
  }
  auto holds = hold(*process, addr, length);
  if (!holds) {
    errno = ENOMEM;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const Inside inside;
  const int result = call();
  if (result == IBV_REREG_MR_ERR_INPUT || result == IBV_REREG_MR_ERR_DONT_FORK_NEW) {
    let_go(*process, *holds);
    return result;
  }
  Registrations::Holds before = process->registrations.take(key_of(mr));
  if (result == 0 || result == IBV_REREG_MR_ERR_DO_FORK_OLD) {
    let_go(*process, before);
  } else {
    // It may be either; the region can only be deregistered now.
    holds->insert(holds->end(), before.begin(), before.end());
  }
  process->registrations.add(key_of(mr), std::move(*holds));
  return result;
}

int ibv_dereg_mr(ibv_mr* mr) noexcept {
  Process* const process = Process::started();
  if (process == nullptr || is_inside) return verbs.ibv_dereg_mr(mr);
  // Before the call: another thread may be given a region of the same name after it.
  Registrations::Holds holds = process->registrations.take(key_of(mr));
  const Inside inside;
  const int result = verbs.ibv_dereg_mr(mr);
  if (result == 0) {
    let_go(*process, holds);
  } else {
    process->registrations.add(key_of(mr), std::move(holds));
  }
  return result;
}

}  // namespace plexrl::shim
