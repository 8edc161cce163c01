#include <pthread.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "interpose/handlers.h"
#include "interpose/nccl.h"
#include "shim/nccl_groups.h"
#include "shim/process.h"
#include "shim/registrations.h"

/// Memory that NCCL registers (NCCL API reference, "User Buffer Registration", "Window
/// Registration") or allocates for that: its peers and NICs may read and write it at any time, so
/// it stays in HBM until it is deregistered or freed, or its communicator has ended.
///
/// No gate is held in a call of NCCL's: it may wait for other ranks, which wait for GPUs of their
/// own. The memory is held before it.

namespace plexrl::shim {
namespace {

using Kind = Registrations::Kind;

constexpr PinReason kRegistered = {"registered with NCCL", wire::MemoryKind::kNccl};
constexpr PinReason kAllocated = {"allocated by ncclMemAlloc", wire::MemoryKind::kNccl};

std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

/// The same for NCCL's calls as `guarded`.
template <typename Body>
ncclResult_t nccl_guarded(Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return ncclSystemError;
  }
}

/// Makes `call`, which gives memory a handle, with the memory held; `name` is what it is called
/// then. While a communicator that does not block goes on with it nobody knows: it is kept until
/// the communicator ends.
template <typename Call, typename Name>
ncclResult_t register_memory(Kind kind, ncclComm_t comm, void* buffer, std::size_t bytes, Call call,
                             Name name) {
  Process* const process = Process::started();
  if (process == nullptr) return call();
  auto holds =
      hold_registered(*process, reinterpret_cast<std::uint64_t>(buffer), bytes, kRegistered);
  if (!holds) return ncclUnhandledCudaError;
  const ncclResult_t result = call();
  const void* const handle = result == ncclSuccess ? name() : nullptr;
  if (handle != nullptr || result == ncclInProgress) {
    process->registrations.add({kind, comm, handle}, std::move(*holds));
  } else {
    let_go(*process, *holds);  // NCCL has no use for it, or refused
  }
  return result;
}

/// Makes `call`, which ends the registration.
template <typename Call>
ncclResult_t give_back(const Registrations::Key& key, Call call) {
  Process* const process = Process::started();
  if (process == nullptr) return call();
  Registrations::Holds holds = process->registrations.take(key);
  const ncclResult_t result = call();
  if (result == ncclSuccess || result == ncclInProgress) {
    let_go(*process, holds);
  } else {
    process->registrations.add(key, std::move(holds));
  }
  return result;
}

/// Makes `call`, which ends the communicator and all that is registered with it.
template <typename Call>
ncclResult_t end_communicator(ncclComm_t comm, Call call) {
  Process* const process = Process::started();
  if (process == nullptr || comm == nullptr) return call();
  std::vector<Registrations::Taken> taken = process->registrations.take_all(comm);
  const auto name = process->communicators.take(comm);
  const ncclResult_t result = call();
  const bool has_ended = result == ncclSuccess || result == ncclInProgress;
  if (name && has_ended) process->communicators.not_made(*name);
  if (name && !has_ended) process->communicators.made(*name, comm);
  for (Registrations::Taken& one : taken) {
    if (has_ended) {
      let_go(*process, one.holds);
    } else {
      process->registrations.add(one.key, std::move(one.holds));
    }
  }
  return result;
}

/// The windows and communicators of a group that has ended so: now they have names.
void settle_group(Process& process, ncclResult_t result) {
  process.communicators.group_ended(result == ncclSuccess || result == ncclInProgress);
  for (Registrations::Window& window : process.registrations.take_pending(this_thread())) {
    const void* const handle = result == ncclSuccess ? *window.out : nullptr;
    if (handle != nullptr || result == ncclInProgress) {
      process.registrations.add({Kind::kNcclWindow, window.comm, handle}, std::move(window.holds));
    } else {
      let_go(process, window.holds);
    }
  }
}

}  // namespace

constinit thread_local int nccl_groups = 0;

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size,
                              void** handle) noexcept {
  return nccl_guarded([&] {
    return register_memory(
        Kind::kNcclBuffer, comm, buff, size,
        [&] { return nccl.ncclCommRegister(comm, buff, size, handle); }, [&] { return *handle; });
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) noexcept {
  return nccl_guarded([&] {
    return give_back({Kind::kNcclBuffer, comm, handle},
                     [&] { return nccl.ncclCommDeregister(comm, handle); });
  });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags) noexcept {
  return nccl_guarded([&] {
    const auto call = [&] { return nccl.ncclCommWindowRegister(comm, buff, size, win, winFlags); };
    Process* const process = Process::started();
    if (process == nullptr || nccl_groups == 0) {
      return register_memory(Kind::kNcclWindow, comm, buff, size, call, [&] { return *win; });
    }
    auto holds =
        hold_registered(*process, reinterpret_cast<std::uint64_t>(buff), size, kRegistered);
    if (!holds) return ncclUnhandledCudaError;
    const ncclResult_t result = call();
    if (result == ncclSuccess || result == ncclInProgress) {
      process->registrations.add_pending(this_thread(), {comm, win, std::move(*holds)});
    } else {
      let_go(*process, *holds);
    }
    return result;
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) noexcept {
  return nccl_guarded([&] {
    return give_back({Kind::kNcclWindow, comm, win},
                     [&] { return nccl.ncclCommWindowDeregister(comm, win); });
  });
}

ncclResult_t ncclGroupStart() noexcept {
  const ncclResult_t result = nccl.ncclGroupStart();
  if (result == ncclSuccess) ++nccl_groups;
  return result;
}

ncclResult_t ncclGroupEnd() noexcept {
  return nccl_guarded([&] {
    Process* const process = Process::started();
    const bool submits = process != nullptr && nccl_groups == 1;
    if (submits) process->communicators.before(nullptr);
    const ncclResult_t result = nccl.ncclGroupEnd();
    if (nccl_groups > 0) --nccl_groups;
    if (submits) process->communicators.after();
    if (process != nullptr && nccl_groups == 0) settle_group(*process, result);
    return result;
  });
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo) noexcept {
  return nccl_guarded([&] {
    const ncclResult_t result = nccl.ncclGroupSimulateEnd(simInfo);
    if (nccl_groups > 0) --nccl_groups;
    Process* const process = Process::started();
    // Nothing of the group was done.
    if (process != nullptr && nccl_groups == 0) settle_group(*process, ncclSystemError);
    return result;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) noexcept {
  return nccl_guarded(
      [&] { return end_communicator(comm, [&] { return nccl.ncclCommDestroy(comm); }); });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) noexcept {
  return nccl_guarded(
      [&] { return end_communicator(comm, [&] { return nccl.ncclCommAbort(comm); }); });
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) noexcept {
  return nccl_guarded([&] {
    if (ptr == nullptr) return nccl.ncclMemAlloc(ptr, size);
    void* fresh = nullptr;
    const ncclResult_t result = nccl.ncclMemAlloc(&fresh, size);
    if (result != ncclSuccess) return result;
    if (Process* const process = Process::started()) {
      const auto address = reinterpret_cast<std::uint64_t>(fresh);
      // NCCL rounds the size up, and registers all of it.
      const auto memory = process->backing(address);
      auto holds = hold_registered(*process, address, memory ? memory->bytes : 0, kAllocated);
      if (!holds) {
        nccl.ncclMemFree(fresh);
        return ncclUnhandledCudaError;
      }
      process->registrations.add({Kind::kNcclMemory, nullptr, fresh}, std::move(*holds));
    }
    *ptr = fresh;
    return result;
  });
}

ncclResult_t ncclMemFree(void* ptr) noexcept {
  return nccl_guarded([&] {
    return give_back({Kind::kNcclMemory, nullptr, ptr}, [&] { return nccl.ncclMemFree(ptr); });
  });
}

}  // namespace plexrl::shim
