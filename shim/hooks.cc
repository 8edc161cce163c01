#include "shim/hooks.h"

#include "shim/contexts.h"
#include "shim/guarded.h"
#include "shim/log.h"
#include "shim/process.h"
#include "shim/room.h"

namespace plexrl::shim {

using interpose::UnpageableKind;

CUresult gate_again(interpose::GateCall gated, CallRef call) noexcept {
  const auto gated_call = [&] {
    gate.enter(gated.stream);
    const CUresult result = call();
    gate.leave();
    return result;
  };
  return again_with_room(gated_call);
}

CUresult host_again(interpose::HostCall, CallRef call) noexcept {
  const auto host_call = [&] {
    const InsideGate inside;
    return call();
  };
  return again_with_room(host_call);
}

CUresult count_enter(const interpose::CountedCall& call) noexcept {
  return guarded([&] {
    if (call.bytes != 0 && is_charged(call.kind)) {
      CUcontext context = nullptr;
      CUdevice device = 0;
      Process* const process = Process::start_with_current(&context, &device);
      if (process != nullptr && !process->devices.charge(device, call.bytes, true)) {
        return no_room();
      }
      // Charged, so it is the job's: neighbours leave if there is no room (make_counted). The
      // driver would not say so of managed memory: it puts that on the host.
      if (process != nullptr && call.kind == UnpageableKind::kManaged) {
        wait_for_room(device, call.bytes);
      }
    }
    if (call.stream != nullptr) gate.enter(call.stream);
    return CUDA_SUCCESS;
  });
}

void count_leave(const interpose::CountedCall& call, std::uint64_t key, CUresult result) noexcept {
  if (call.stream != nullptr) gate.leave();
  Process* const process = Process::started();
  if (process == nullptr || call.bytes == 0) return;
  guarded([&] {
    const auto current = current_context();
    if (!current) return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
      process->unpageable.add(to_wire(call.kind), key, {current->device, call.bytes});
    } else if (is_charged(call.kind)) {
      process->devices.uncharge(current->device, call.bytes, true);
    }
    process->agent.notify();
    return CUDA_SUCCESS;
  });
}

std::uint64_t count_remove(interpose::Api, UnpageableKind kind, std::uint64_t key) noexcept {
  Process* const process = Process::started();
  if (process == nullptr) return 0;
  std::uint64_t bytes = 0;
  guarded([&] {
    const Unpageable::Entry entry = process->unpageable.remove(to_wire(kind), key);
    bytes = entry.bytes;
    if (bytes != 0 && is_charged(kind)) {
      process->devices.uncharge(entry.device, bytes, true);
      process->agent.notify();
    }
    return CUDA_SUCCESS;
  });
  return bytes;
}

void count_restore(interpose::Api, UnpageableKind kind, std::uint64_t key,
                   std::uint64_t bytes) noexcept {
  Process* const process = Process::started();
  if (process == nullptr || bytes == 0) return;
  guarded([&] {
    const auto current = current_context();
    if (!current) return CUDA_SUCCESS;
    // The driver refused to free it: it is there, whatever the manager thinks of the charge.
    if (is_charged(kind)) process->devices.charge_taken(current->device, bytes, true);
    process->unpageable.add(to_wire(kind), key, {current->device, bytes});
    return CUDA_SUCCESS;
  });
}

void on_unknown_entry(const char* name, int version) noexcept {
  PLEXRL_WARN("hooks",
              "unknown driver function '%s' version=%d: the process keeps the GPU from now on",
              name, version);
  note_exclusive("the program uses a driver function that this version of PlexRL does not know");
  // The call may submit work: it goes on only with a lease, which is not withdrawn any more.
  gate.enter_host();
  gate.leave();
}

}  // namespace plexrl::shim
