#include "tests/unit/shim/fake_driver.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace plexrl::shim::testing {

FakeDriver::FakeDriver(std::size_t bytes) : hbm_bytes(bytes) { become_the_driver(); }

CUresult FakeDriver::count(const char* name) {
  const int number = ++counts_[name];
  const auto always = always_.find(name);
  if (always != always_.end()) return always->second;
  static const std::set<std::string> give_back{
      "cuMemRelease", "cuEventDestroy_v2", "cuStreamDestroy_v2", "cuMemHostUnregister",
      "cuMemFree_v2", "cuMemFreeHost",     "cuModuleUnload",     "cuCtxPopCurrent_v2"};
  if (fails_one_in_ != 0 && give_back.count(name) == 0 && random_() % fails_one_in_ == 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto it = failures_.find(name);
  if (it == failures_.end() || it->second.first != number) return CUDA_SUCCESS;
  const CUresult result = it->second.second;
  failures_.erase(it);
  return result;
}

void FakeDriver::fail(const std::string& name, int nth, CUresult result) {
  const std::lock_guard lock(mutex);
  failures_[name] = {counts_[name] + nth, result};
}

void FakeDriver::fail_always(const std::string& name, CUresult result) {
  const std::lock_guard lock(mutex);
  if (result == CUDA_SUCCESS) {
    always_.erase(name);
  } else {
    always_[name] = result;
  }
}

void FakeDriver::fail_at_random(std::uint64_t seed, unsigned every) {
  const std::lock_guard lock(mutex);
  random_.seed(seed);
  fails_one_in_ = every;
}

void FakeDriver::be_late() {
  const std::lock_guard lock(mutex);
  is_late_ = true;
}

int FakeDriver::strayed() const {
  const std::lock_guard lock(mutex);
  return strayed_;
}

CUresult FakeDriver::submit(CUstream stream, std::uint64_t address, std::size_t bytes,
                            std::function<CUresult()> work) {
  if (!is_late_) return work();
  queues_[stream].late.push_back({address, bytes, std::move(work)});
  return CUDA_SUCCESS;
}

void FakeDriver::mark(CUevent event, CUstream stream) {
  const Queue& queue = queues_[stream];
  marks_[event] = {stream, queue.finished + queue.late.size()};
}

CUresult FakeDriver::finish(CUstream stream) { return finish(stream, ~std::uint64_t{0}); }

CUresult FakeDriver::finish(CUevent event) {
  const auto it = marks_.find(event);
  return it == marks_.end() ? CUDA_SUCCESS : finish(it->second.first, it->second.second);
}

CUresult FakeDriver::finish(CUstream stream, std::uint64_t number) {
  Queue& queue = queues_[stream];
  CUresult first = CUDA_SUCCESS;
  while (!queue.late.empty() && queue.finished < number) {
    const Late late = std::move(queue.late.front());
    queue.late.pop_front();
    ++queue.finished;
    const CUresult result = late.work();
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

void FakeDriver::expect_unused(std::uint64_t address, std::size_t bytes) {
  for (const auto& [stream, queue] : queues_) {
    for (const Late& late : queue.late) {
      if (late.address < address + bytes && address < late.address + late.bytes) ++strayed_;
    }
  }
}

std::set<CUstream> FakeDriver::streams_used(const std::string& name) const {
  const std::lock_guard lock(mutex);
  const auto it = copies_in.find(name);
  return it == copies_in.end() ? std::set<CUstream>{} : it->second;
}

int FakeDriver::calls(const std::string& name) const {
  const std::lock_guard lock(mutex);
  const auto it = counts_.find(name);
  return it == counts_.end() ? 0 : it->second;
}

void FakeDriver::set_busy(CUstream stream, bool is_busy) {
  const std::lock_guard lock(mutex);
  is_busy ? static_cast<void>(busy.insert(stream)) : static_cast<void>(busy.erase(stream));
}

std::vector<std::string> FakeDriver::called() const {
  const std::lock_guard lock(mutex);
  std::vector<std::string> names;
  for (const auto& [name, count] : counts_) names.push_back(name);
  return names;
}

CUcontext FakeDriver::make_context() {
  const std::lock_guard lock(mutex);
  const auto context = reinterpret_cast<CUcontext>(next_object += 0x100);
  contexts.insert(context);
  return context;
}

/// What is at `address`, and how many bytes follow there; null: nothing.
std::pair<std::byte*, std::size_t> FakeDriver::find(std::uint64_t address) {
  const auto own = own_memory.upper_bound(address);
  if (own != own_memory.begin()) {
    auto& [start, bytes] = *std::prev(own);
    if (address - start < bytes.size()) {
      return {bytes.data() + (address - start), bytes.size() - (address - start)};
    }
  }
  const auto host = pinned.upper_bound(address);
  if (host != pinned.begin()) {
    const auto [start, bytes] = *std::prev(host);
    if (address - start < bytes) {
      return {reinterpret_cast<std::byte*>(address), bytes - (address - start)};
    }
  }
  auto it = mappings.upper_bound(address);
  if (it == mappings.begin()) return {};
  --it;
  const std::size_t offset = address - it->first;
  if (offset >= it->second.bytes || !it->second.accessible) return {};
  return {handles.at(it->second.handle).data() + offset, it->second.bytes - offset};
}

bool FakeDriver::copy(std::uint64_t address, std::byte* out, const std::byte* in,
                      std::size_t bytes) {
  while (bytes != 0) {
    const auto [memory, left] = find(address);
    if (memory == nullptr) return false;
    const std::size_t part = std::min(bytes, left);
    if (out != nullptr) {
      std::memcpy(out, memory, part);
      out += part;
    } else {
      std::memcpy(memory, in, part);
      in += part;
    }
    address += part;
    bytes -= part;
  }
  return true;
}

bool FakeDriver::write(std::uint64_t address, const std::vector<std::byte>& bytes) {
  const std::lock_guard lock(mutex);
  return copy(address, nullptr, bytes.data(), bytes.size());
}

bool FakeDriver::read(std::uint64_t address, std::vector<std::byte>* bytes) const {
  const std::lock_guard lock(mutex);
  return const_cast<FakeDriver*>(this)->copy(address, bytes->data(), nullptr, bytes->size());
}

std::size_t FakeDriver::used_bytes() const {
  const std::lock_guard lock(mutex);
  return used;
}

std::size_t FakeDriver::mapped_bytes() const {
  const std::lock_guard lock(mutex);
  std::size_t sum = 0;
  for (const auto& [address, mapping] : mappings) sum += mapping.bytes;
  return sum;
}

std::size_t FakeDriver::registered_ranges() const {
  const std::lock_guard lock(mutex);
  return registered.size();
}

std::size_t FakeDriver::live_contexts() const {
  const std::lock_guard lock(mutex);
  return contexts.size();
}

}  // namespace plexrl::shim::testing
