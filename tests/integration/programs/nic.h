#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/integration/programs/program.h"

namespace plexrl::integration {

/// A NIC, opened as NCCL opens one: libibverbs.so.1 by dlopen and dlvsym. What a peer on the
/// network would write the program writes itself, by a call that only the simulated GPU's
/// libibverbs has (tools/simgpu/verbs); its bytes pass neither the GPU nor the driver. Where there
/// is no such call the program ends with 77, skipped.
class Nic {
 public:
  /// As verbs.h has it.
  struct Region {
    void* context;
    void* pd;
    void* address;
    std::size_t length;
    std::uint32_t handle, lkey, rkey;
  };

  Nic() {
    if (library_ == nullptr || dlvsym(library_, "simgpu_nic_write", "SIMGPU_1.0") == nullptr) {
      std::fprintf(stderr, "needs the NIC beside the simulated GPU (libibverbs.so.1)\n");
      std::exit(77);
    }
    void** const list = get<void**(int*)>("ibv_get_device_list", "IBVERBS_1.1")(nullptr);
    context_ = get<void*(void*)>("ibv_open_device", "IBVERBS_1.1")(list[0]);
    get<void(void**)>("ibv_free_device_list", "IBVERBS_1.1")(list);
    pd_ = get<void*(void*)>("ibv_alloc_pd", "IBVERBS_1.1")(context_);
  }
  ~Nic() {
    expect(get<int(void*)>("ibv_dealloc_pd", "IBVERBS_1.1")(pd_) == 0, "ibv_dealloc_pd");
    get<int(void*)>("ibv_close_device", "IBVERBS_1.1")(context_);
  }
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  Region* register_memory(CUdeviceptr address, std::size_t bytes) {
    void* const at = reinterpret_cast<void*>(address);
    auto* const region = get<Region*(void*, void*, std::size_t, int)>("ibv_reg_mr", "IBVERBS_1.1")(
        pd_, at, bytes, 7);
    expect(region != nullptr && region->address == at, "ibv_reg_mr");
    return region;
  }
  /// By the form for which the peer numbers the bytes from `iova` on.
  Region* register_memory(CUdeviceptr address, std::size_t bytes, std::uint64_t iova) {
    auto* const region = get<Region*(void*, void*, std::size_t, std::uint64_t, unsigned)>(
        "ibv_reg_mr_iova2", "IBVERBS_1.8")(pd_, reinterpret_cast<void*>(address), bytes, iova, 7);
    expect(region != nullptr, "ibv_reg_mr_iova2");
    return region;
  }
  void move(Region* region, CUdeviceptr address, std::size_t bytes) {
    constexpr int kTranslation = 1;
    expect(get<int(Region*, int, void*, void*, std::size_t, int)>("ibv_rereg_mr", "IBVERBS_1.1")(
               region, kTranslation, nullptr, reinterpret_cast<void*>(address), bytes, 0) == 0,
           "ibv_rereg_mr");
  }
  void deregister(Region* region) {
    expect(get<int(Region*)>("ibv_dereg_mr", "IBVERBS_1.1")(region) == 0, "ibv_dereg_mr");
  }

  /// What the peer does, without a call of the driver's.
  void write(const Region* region, std::uint64_t address, const std::vector<unsigned char>& bytes) {
    expect(get<int(std::uint32_t, std::uint64_t, const void*, std::size_t)>(
               "simgpu_nic_write", "SIMGPU_1.0")(region->rkey, address, bytes.data(),
                                                 bytes.size()) == 0,
           "simgpu_nic_write");
  }

 private:
  static void expect(bool is_so, const char* call) {
    if (is_so) return;
    std::fprintf(stderr, "%s failed\n", call);
    std::exit(1);
  }
  template <typename Function>
  Function* get(const char* name, const char* version) {
    void* const found = dlvsym(library_, name, version);
    expect(found != nullptr, name);
    return reinterpret_cast<Function*>(found);
  }

  void* library_ = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  void* context_ = nullptr;
  void* pd_ = nullptr;
};

}  // namespace plexrl::integration
