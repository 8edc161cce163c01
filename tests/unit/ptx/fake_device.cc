#include "tests/unit/ptx/fake_device.h"

#include <gtest/gtest.h>

namespace plexrl::simgpu::ptx {

FakeDevice::FakeDevice() : pages_(new std::atomic<std::byte*>[kPages]) {
  for (std::size_t i = 0; i < kPages; ++i) pages_[i] = nullptr;
  memory_.arena_base = kArenaBase;
  memory_.arena_bytes = kPages << kPageShift;
  memory_.page_shift = kPageShift;
  memory_.pages = pages_.get();
  memory_.context = this;
  memory_.find_texture = [](void* self, std::uint64_t object) {
    const auto& all = static_cast<FakeDevice*>(self)->textures_;
    return object - 1 < all.size() ? all[object - 1] : nullptr;
  };
  memory_.find_surface = [](void* self, std::uint64_t object) {
    const auto& all = static_cast<FakeDevice*>(self)->surfaces_;
    return object - 1 < all.size() ? all[object - 1] : nullptr;
  };
  memory_.find_replicas = [](void* self, int, std::uint64_t address, std::size_t bytes,
                             std::byte** out) {
    const auto* const device = static_cast<FakeDevice*>(self);
    std::size_t count = 0;
    for (const Multicast& multicast : device->multicasts_) {
      if (address - multicast.address >= multicast.bytes) continue;
      for (const std::uint64_t member : multicast.members)
        out[count++] = device->host(member + (address - multicast.address), bytes);
    }
    return count;
  };
}

std::uint64_t FakeDevice::add_texture(const Texture& texture) {
  textures_.push_back(std::make_shared<Texture>(texture));
  return textures_.size();
}

std::uint64_t FakeDevice::add_surface(const TexelArray& texels) {
  surfaces_.push_back(std::make_shared<TexelArray>(texels));
  return surfaces_.size();
}

std::uint64_t FakeDevice::add_multicast(std::size_t bytes, std::vector<std::uint64_t> members) {
  const std::uint64_t address = kArenaBase + ((kPages - 1 - multicasts_.size()) << kPageShift);
  multicasts_.push_back({address, bytes, std::move(members)});
  return address;
}

std::uint64_t FakeDevice::allocate(std::size_t bytes) {
  const std::size_t page_bytes = std::size_t{1} << kPageShift;
  const std::size_t pages = (bytes + page_bytes - 1) / page_bytes;
  if (next_page_ + pages + 1 > kPages) {
    ADD_FAILURE() << "the fake device is full";
    return 0;
  }
  // Pages in reverse, so that neighbours on the device are no neighbours on the host.
  auto block = std::make_unique<std::byte[]>(pages * page_bytes);
  for (std::size_t i = 0; i < pages; ++i) {
    pages_[next_page_ + i] = block.get() + (pages - 1 - i) * page_bytes;
  }
  blocks_.push_back(std::move(block));
  const std::uint64_t address = kArenaBase + (next_page_ << kPageShift);
  next_page_ += pages + 1;
  return address;
}

std::byte* FakeDevice::host(std::uint64_t address, std::size_t) const {
  const std::uint64_t offset = address - kArenaBase;
  return pages_[offset >> kPageShift].load() + (offset & ((1u << kPageShift) - 1));
}

std::unique_ptr<Module> load_module(FakeDevice& device,
                                    const std::vector<std::string_view>& sources, int sm) {
  LoadError error = LoadError::kNone;
  std::string log;
  std::unique_ptr<Module> module = Module::load(sources, sm, &error, &log);
  if (module == nullptr) {
    ADD_FAILURE() << "load: " << log;
    return nullptr;
  }
  std::vector<std::uint64_t> addresses;
  std::uint64_t bytes = 0;
  for (const Variable& variable : module->variables()) {
    bytes = (bytes + variable.alignment - 1) / variable.alignment * variable.alignment;
    addresses.push_back(bytes);
    bytes += variable.bytes;
  }
  const std::uint64_t base = device.allocate(bytes);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Variable& variable = module->variables()[i];
    addresses[i] += base;
    module->set_address(variable.name, addresses[i]);
    device.write(addresses[i], variable.initial);
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    for (const Variable::Relocation& relocation : module->variables()[i].relocations) {
      std::uint64_t value = module->function_address(relocation.symbol);
      for (std::size_t k = 0; k < addresses.size(); ++k) {
        if (module->variables()[k].name == relocation.symbol) value = addresses[k];
      }
      device.write(
          addresses[i] + relocation.offset,
          std::vector<std::uint64_t>{value + static_cast<std::uint64_t>(relocation.addend)});
    }
  }
  return module;
}

std::vector<std::byte> Arguments::pack(const KernelInfo& info) const {
  std::vector<std::byte> out(info.parameter_bytes);
  EXPECT_EQ(values_.size(), info.parameters.size());
  for (std::size_t i = 0; i < values_.size() && i < info.parameters.size(); ++i) {
    EXPECT_EQ(values_[i].size(), info.parameters[i].bytes) << "parameter " << i;
    std::memcpy(out.data() + info.parameters[i].offset, values_[i].data(),
                std::min(values_[i].size(), info.parameters[i].bytes));
  }
  return out;
}

LaunchConfig make_config(FakeDevice& device, const Kernel& kernel, const Shape& shape,
                         const Arguments& arguments) {
  LaunchConfig config;
  config.grid[0] = shape.grid.x;
  config.grid[1] = shape.grid.y;
  config.grid[2] = shape.grid.z;
  config.block[0] = shape.block.x;
  config.block[1] = shape.block.y;
  config.block[2] = shape.block.z;
  config.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  config.cooperative = shape.cooperative;
  config.parameters = arguments.pack(info(kernel));
  config.memory = &device.memory();
  config.now_ns = [](void* context) { return static_cast<FakeDevice*>(context)->now_ns; };
  config.now_context = &device;
  config.print = [](void* context, std::string_view text) {
    static_cast<FakeDevice*>(context)->printed += text;
  };
  config.print_context = &device;
  return config;
}

Fault run_kernel(FakeDevice& device, const Module& module, std::string_view name,
                 const Shape& shape, const Arguments& arguments) {
  const Kernel* const kernel = module.find_kernel(name);
  if (kernel == nullptr) {
    ADD_FAILURE() << "no kernel '" << name << "'";
    return {};
  }
  Execution execution(*kernel, make_config(device, *kernel, shape, arguments));
  for (int waits = 0; waits < 1'000'000;) {
    switch (execution.run(1'000'000)) {
      case Execution::State::kDone:
        return {};
      case Execution::State::kFault:
        return execution.fault();
      case Execution::State::kWaiting:
        EXPECT_GT(execution.wake_ns(), device.now_ns);
        device.now_ns = std::max(device.now_ns + 1, execution.wake_ns());
        ++waits;
        break;
      case Execution::State::kBudgetUsed:
        break;
    }
  }
  ADD_FAILURE() << "kernel '" << name << "' waits for ever";
  return execution.fault();
}

}  // namespace plexrl::simgpu::ptx
