#pragma once

#include "interpose/handlers.h"
#include "shim/absence.h"
#include "shim/gate.h"
#include "shim/room.h"

/// What interpose/wrappers.inc calls around the driver's function (interpose/handlers.h says when).
/// Inline, so that an open gate costs no call.

namespace plexrl::shim {

using DriverCall = Absence::Call;

PLEXRL_HOT CUresult gate_enter(const interpose::GateCall& call) noexcept {
  gate.enter(call.stream);
  return CUDA_SUCCESS;
}

PLEXRL_HOT void gate_leave(const interpose::GateCall&, CUresult) noexcept { gate.leave(); }

/// Defined in job_view.cc.
bool is_outside(std::uint64_t address, std::uint64_t bytes) noexcept;

PLEXRL_HOT CUresult host_enter(const interpose::HostCall&) noexcept {
  gate.enter_host();
  return CUDA_SUCCESS;
}

PLEXRL_HOT void host_leave(const interpose::HostCall&, CUresult) noexcept { gate.leave(); }

CUresult gate_again(interpose::GateCall gated, CallRef call) noexcept;
CUresult host_again(interpose::HostCall, CallRef call) noexcept;

CUresult count_enter(const interpose::CountedCall& call) noexcept;
/// Host memory is in no GPU: shown, not charged.
constexpr bool is_charged(interpose::UnpageableKind kind) noexcept {
  return kind != interpose::UnpageableKind::kHostRegistered;
}
/// What is queued on a stream is inside the gate meanwhile, where nobody may wait for room.
template <typename Call>
CUresult make_counted(const interpose::CountedCall& counted, Call call) noexcept {
  return is_charged(counted.kind) && counted.stream == nullptr ? call_with_room(call) : call();
}
void count_leave(const interpose::CountedCall& call, std::uint64_t key, CUresult result) noexcept;
std::uint64_t count_remove(interpose::Api api, interpose::UnpageableKind kind,
                           std::uint64_t key) noexcept;
void count_restore(interpose::Api api, interpose::UnpageableKind kind, std::uint64_t key,
                   std::uint64_t bytes) noexcept;

}  // namespace plexrl::shim
