// As PyTorch's allocator does with expandable_segments: one reservation of 9/8 of the device, grown
// by handles of 2 and 20 MiB at its end, parts of it unmapped and mapped again with other handles.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

class Segment {
 public:
  Segment(CUdevice device, std::size_t unit) : unit_(unit) {
    prop_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::size_t total = 0;
    CHECK(cuDeviceTotalMem(&total, device));
    count_ = (total + total / 8) / unit;
    CHECK(cuMemAddressReserve(&start_, count_ * unit, 0, 0, 0));
    handles_.resize(count_);
  }
  ~Segment() {
    for (std::size_t i = 0; i < count_; ++i) {
      if (handles_[i] != 0) unmap(i, 1);
    }
    CHECK(cuMemAddressFree(start_, count_ * unit_));
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  CUdeviceptr at(std::size_t piece) const { return start_ + piece * unit_; }

  void map(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      CHECK(cuMemCreate(&handles_[i], unit_, &prop_, 0));
      CHECK(cuMemMap(at(i), unit_, 0, handles_[i], 0));
    }
    CUmemAccessDesc access = {};
    access.location = prop_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(at(first), count * unit_, &access, 1));
  }

  void unmap(std::size_t first, std::size_t count) {
    CHECK(cuCtxSynchronize());
    for (std::size_t i = first; i < first + count; ++i) {
      CHECK(cuMemUnmap(at(i), unit_));
      CHECK(cuMemRelease(handles_[i]));
      handles_[i] = 0;
    }
  }

 private:
  const std::size_t unit_;
  std::size_t count_ = 0;
  CUdeviceptr start_ = 0;
  CUmemAllocationProp prop_ = {};
  std::vector<CUmemGenericAllocationHandle> handles_;
};

}  // namespace

int main() {
  Program program;
  constexpr std::size_t kSmall = 2 << 20, kLarge = 20 << 20;
  {
    Segment small(program.device(), kSmall), large(program.device(), kLarge);
    small.map(0, 2);
    large.map(0, 1);
    CHECK(cuMemsetD32(small.at(0), 1, 2 * kSmall / 4));
    CHECK(cuMemsetD32(large.at(0), 2, kLarge / 4));
    for (unsigned round = 0; round < 3; ++round) {
      // Grows at the end, in use at once with what was there.
      small.map(2, 2);
      CHECK(cuMemsetD32(small.at(2), 10 + round, 2 * kSmall / 4));
      launch(program.kernel("mix"), kSmall, nullptr, small.at(0),
             static_cast<unsigned long long>(kSmall), round);
      launch(program.kernel("mix"), kLarge / 4, nullptr, large.at(0),
             static_cast<unsigned long long>(kLarge / 4), round);
      CHECK(cuCtxSynchronize());
      program.pause();
      print_device("small", small.at(0), 4 * kSmall);
      // A hole in the middle, then other memory there.
      small.unmap(1, 1);
      program.pause();
      small.map(1, 1);
      CHECK(cuMemsetD32(small.at(1), 100 + round, kSmall / 4));
      launch(program.kernel("combine"), kSmall / 4, nullptr, small.at(0), small.at(1), small.at(3),
             static_cast<unsigned long long>(kSmall / 4), 7u);
      small.unmap(2, 2);
    }
    print_device("small", small.at(0), 2 * kSmall);
    print_device("large", large.at(0), kLarge);
  }
}
