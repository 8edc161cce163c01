#include "shim/devices.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "interpose/driver.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "devices";

/// How often room is made for one charge: other threads may take it meanwhile.
constexpr int kTurns = 4;

unsigned long mib(std::uint64_t bytes) { return static_cast<unsigned long>(bytes >> 20); }

/// The job has been told of that much free memory, so a refusal needs its reason.
void say_others_come_first(std::uint64_t bytes, std::uint64_t left) {
  log_user(
      "out of memory: %lu MiB that only the driver can move (managed memory, arrays, graphs) do "
      "not fit, though %lu MiB of the promise are free: the jobs beside have been promised room "
      "that it would take for good. Start jobs with a smaller --memory, or this one without others "
      "beside it",
      mib(bytes), mib(left));
}

/// Who knows the GPU expects that there is more.
void say_promise_is_used_up(std::uint64_t bytes, const Devices::Figures& figures) {
  log_user(
      "out of memory: the job asks for %lu MiB more on a GPU of which it has been promised %lu MiB "
      "and uses %lu: the answer is that of a GPU of this size. plexrl-run --memory promises more",
      mib(bytes), mib(figures.promised_bytes), mib(figures.used_bytes));
}

}  // namespace

bool Devices::describe(CUdevice device, Attached* attached) {
  CUuuid uuid{};
  std::size_t total = 0;
  int vmm = 0;
  if (driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS &&
      driver.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS) {
    return false;
  }
  if (driver.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) return false;
  driver.cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                              device);
  attached->device = device;
  std::memcpy(attached->uuid.bytes, uuid.bytes, sizeof attached->uuid.bytes);
  attached->total_bytes = total;
  attached->has_vmm = vmm != 0;
  return true;
}

Devices::Attach Devices::attach(CUdevice device) {
  if (find(device)) return Attach::kAttached;
  Attached attached;
  if (!describe(device, &attached)) return Attach::kDriverFailed;
  wire::AttachGpu question{};
  question.uuid = attached.uuid;
  question.total_bytes = attached.total_bytes;
  std::unique_ptr<Packet> answer;
  while ((answer = client_.ask(wire::Type::kAttachGpu, question)) == nullptr) {
    client_.wait_connected();  // the manager is being restarted: a newcomer waits
  }
  const auto* const accepted = answer->as<wire::Attached>();
  if (answer->type != wire::Type::kAttached || accepted == nullptr ||
      accepted->gpu >= wire::kMaxGpus) {
    return Attach::kUnknown;
  }
  attached.gpu = accepted->gpu;
  attached.promised_bytes = accepted->promised_bytes;
  const std::lock_guard lock(mutex_);
  for (const Attached& other : attached_) {
    if (other.device == device) return Attach::kAttached;  // two threads asked; the answers agree
  }
  attached_.push_back(attached);
  PLEXRL_INFO(kFile, "attached device=%d gpu=%u promised=%lu", device, attached.gpu,
              static_cast<unsigned long>(attached.promised_bytes));
  return Attach::kAttached;
}

void Devices::attach_again() {
  for (const Attached& known : all()) {
    wire::AttachGpu question{};
    question.uuid = known.uuid;
    question.total_bytes = known.total_bytes;
    const auto answer = client_.ask(wire::Type::kAttachGpu, question);
    if (answer == nullptr || answer->type != wire::Type::kAttached) continue;
    const auto* const accepted = answer->as<wire::Attached>();
    if (accepted == nullptr || accepted->gpu >= wire::kMaxGpus) continue;
    const std::lock_guard lock(mutex_);
    for (Attached& attached : attached_) {
      if (attached.device != known.device) continue;
      attached.gpu = accepted->gpu;
      attached.promised_bytes = accepted->promised_bytes;
    }
  }
}

std::optional<Devices::Attached> Devices::find(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  for (const Attached& attached : attached_) {
    if (attached.device == device) return attached;
  }
  return std::nullopt;
}

std::optional<CUdevice> Devices::device_of(std::uint32_t gpu) const {
  const std::lock_guard lock(mutex_);
  for (const Attached& attached : attached_) {
    if (attached.gpu == gpu) return attached.device;
  }
  return std::nullopt;
}

std::vector<Devices::Attached> Devices::all() const {
  const std::lock_guard lock(mutex_);
  return attached_;
}

std::uint64_t Devices::mask() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t mask = 0;
  for (const Attached& attached : attached_) mask |= std::uint64_t{1} << attached.gpu;
  return mask;
}

std::vector<CUdevice> Devices::devices_in(std::uint64_t mask) const {
  const std::lock_guard lock(mutex_);
  std::vector<CUdevice> devices;
  for (const Attached& attached : attached_) {
    if ((mask >> attached.gpu & 1) != 0) devices.push_back(attached.device);
  }
  return devices;
}

void Devices::add_to_sums(CUdevice device, std::int64_t bytes, bool unpageable) {
  const std::lock_guard lock(mutex_);
  for (Attached& attached : attached_) {
    if (attached.device != device) continue;
    std::uint64_t& sum = unpageable ? attached.unpageable_bytes : attached.charged_bytes;
    sum += static_cast<std::uint64_t>(bytes);
  }
}

bool Devices::charge(CUdevice device, std::uint64_t bytes, bool unpageable, bool says_why) {
  if (charge_taken(device, bytes, unpageable)) return true;
  const auto attached = find(device);
  if (!attached || bytes > attached->total_bytes) return false;
  bool found_some = true;
  for (int turn = 0; turn < kTurns && found_some; ++turn) {
    found_some = make_room_(device);
    if (charge_taken(device, bytes, unpageable)) return true;
  }
  if (unpageable && says_why) explain_refusal(device, bytes, true);
  return false;
}

void Devices::explain_refusal(CUdevice device, std::uint64_t bytes, bool unpageable) {
  if (has_said_promise_.load() && (!unpageable || has_said_others_.load())) return;
  const auto attached = find(device);
  if (!attached || bytes > attached->total_bytes) return;
  const auto now = figures(device);
  const std::uint64_t left = now->promised_bytes - std::min(now->promised_bytes, now->used_bytes);
  if (bytes > left) {
    if (!has_said_promise_.exchange(true)) say_promise_is_used_up(bytes, *now);
  } else if (unpageable && !has_said_others_.exchange(true)) {
    say_others_come_first(bytes, left);
  }
}

bool Devices::charge_taken(CUdevice device, std::uint64_t bytes, bool unpageable) {
  const auto attached = find(device);
  if (!attached) return false;
  // Larger than the GPU: the bare driver's answer, without a question.
  if (bytes > attached->total_bytes) return false;
  wire::Charge question{};
  question.gpu = attached->gpu;
  question.unpageable = unpageable ? 1 : 0;
  question.bytes = bytes;
  const auto answer = client_.ask(wire::Type::kCharge, question);
  bool granted = false;
  if (answer == nullptr) {
    // The manager is away: what it promised still holds (invariant 9), and it learns our sum when
    // it is back.
    granted =
        attached->charged_bytes + attached->unpageable_bytes + bytes <= attached->promised_bytes;
  } else if (answer->type == wire::Type::kCharged && answer->as<wire::Charged>() != nullptr) {
    granted = answer->as<wire::Charged>()->granted != 0;
  }
  if (granted) add_to_sums(device, static_cast<std::int64_t>(bytes), unpageable);
  return granted;
}

bool Devices::pin(CUdevice device, std::uint64_t bytes) {
  const auto attached = find(device);
  if (!attached) return false;
  const auto answer = client_.ask(
      wire::Type::kPin, wire::Charge{.gpu = attached->gpu, .unpageable = 1, .bytes = bytes});
  // Without a manager nobody is moved in either; it learns our sums when it is back.
  if (answer != nullptr) {
    const auto* const charged =
        answer->type == wire::Type::kCharged ? answer->as<wire::Charged>() : nullptr;
    if (charged == nullptr || charged->granted == 0) return false;
  }
  add_to_sums(device, -static_cast<std::int64_t>(bytes), false);
  add_to_sums(device, static_cast<std::int64_t>(bytes), true);
  return true;
}

void Devices::unpin(CUdevice device, std::uint64_t bytes) {
  const auto attached = find(device);
  if (!attached || bytes == 0) return;
  add_to_sums(device, static_cast<std::int64_t>(bytes), false);
  add_to_sums(device, -static_cast<std::int64_t>(bytes), true);
  client_.flush_uncharges();  // what was freed came before
  client_.connection().send(wire::Type::kPin,
                            wire::Charge{.gpu = attached->gpu, .unpageable = 0, .bytes = bytes});
}

void Devices::uncharge(CUdevice device, std::uint64_t bytes, bool unpageable) {
  const auto attached = find(device);
  if (!attached || bytes == 0) return;
  add_to_sums(device, -static_cast<std::int64_t>(bytes), unpageable);
  client_.uncharge(attached->gpu, bytes, unpageable);
}

std::optional<Devices::Figures> Devices::figures(CUdevice device) {
  const auto attached = find(device);
  if (!attached) return std::nullopt;
  // A charge of nothing brings the manager's own figures, with all our frees counted.
  wire::Charge question{};
  question.gpu = attached->gpu;
  const auto answer = client_.ask(wire::Type::kCharge, question);
  if (answer != nullptr && answer->type == wire::Type::kCharged) {
    const auto* const charged = answer->as<wire::Charged>();
    if (charged != nullptr) return Figures{charged->promised_bytes, charged->used_bytes};
  }
  return Figures{attached->promised_bytes, attached->charged_bytes + attached->unpageable_bytes};
}

}  // namespace plexrl::shim
