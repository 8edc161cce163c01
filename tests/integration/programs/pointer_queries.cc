// A random program that allocates and frees memory of every kind and asks all that the driver tells
// about addresses in it: the same before and after a pause, and the same when the memory is never
// away. Addresses are printed as distances, numbers that the driver draws by when they first came.
#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr int kRounds = 4, kActions = 10, kAddresses = 2;
constexpr std::size_t kMiB = 1 << 20;

enum class Kind { kAllocation, kPitched, kPool, kMapped, kExportable, kManaged, kHost, kCount };
constexpr const char* kNames[] = {"allocation", "pitched", "pool", "mapped",
                                  "exportable", "managed", "host"};

struct Object {
  Kind kind;
  CUdeviceptr base;
  std::size_t bytes;
  CUmemGenericAllocationHandle handle = 0;  ///< of what is mapped in the middle of `base`
};

template <typename... Parts>
std::string joined(const Parts&... parts) {
  std::string text;
  ((text += parts), ...);
  return text;
}

/// Names numbers by the order in which they come.
class Names {
 public:
  std::string operator()(unsigned long long number) {
    return std::to_string(known_.try_emplace(number, known_.size()).first->second);
  }

 private:
  std::map<unsigned long long, std::size_t> known_;
};

class RandomProgram {
 public:
  explicit RandomProgram(Program& program) : program_(program) {
    CHECK(cuCtxGetCurrent(&context_));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    touched_ = allocate(kMiB);
  }
  ~RandomProgram() {
    while (!objects_.empty()) destroy(0);
    CHECK(cuMemFree(touched_));
    CHECK(cuStreamDestroy(stream_));
  }

  void round() {
    for (int i = 0; i < kActions; ++i) {
      if (objects_.size() > 3 && draw(3) == 0) {
        destroy(draw(objects_.size()));
      } else {
        create(static_cast<Kind>(draw(static_cast<std::size_t>(Kind::kCount))));
      }
    }
    CHECK(cuMemsetD32Async(touched_, 1, kMiB / 4, stream_));  // so that all memory is there
    CHECK(cuStreamSynchronize(stream_));
    std::vector<std::pair<CUdeviceptr, const Object*>> places;
    for (const Object& object : objects_) {
      places.emplace_back(object.base, &object);
      for (int i = 0; i < kAddresses; ++i)
        places.emplace_back(object.base + draw(object.bytes), &object);
      // Behind its end, before any other may begin.
      const bool has_end = object.kind == Kind::kAllocation || object.kind == Kind::kPool;
      if (has_end && object.bytes % 256 != 0) {
        places.emplace_back(object.base + object.bytes, &object);
      }
    }
    std::vector<std::string> before;
    for (const auto& [address, object] : places) before.push_back(describe(address, *object));
    program_.pause();
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::string after = describe(places[i].first, *places[i].second);
      std::printf("%s\n", before[i].c_str());
      if (after == before[i]) continue;
      std::printf("after the pause: %s\n", after.c_str());
      std::fflush(stdout);
      std::exit(1);
    }
  }

 private:
  std::size_t draw(std::size_t below) { return random_() % below; }

  CUmemAllocationProp properties(bool is_exportable) const {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program_.device()}};
    if (is_exportable) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
  }

  /// A reservation of three parts, of which the middle one has memory.
  Object map(Kind kind) {
    const std::size_t bytes = 2 * kMiB * (1 + draw(2));
    Object object{kind, 0, 3 * bytes};
    const CUmemAllocationProp prop = properties(kind == Kind::kExportable);
    CHECK(cuMemCreate(&object.handle, bytes, &prop, 0));
    CHECK(cuMemAddressReserve(&object.base, object.bytes, 0, 0, 0));
    CHECK(cuMemMap(object.base + bytes, bytes, 0, object.handle, 0));
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags =
        draw(2) == 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (draw(4) != 0) CHECK(cuMemSetAccess(object.base + bytes, bytes, &access, 1));
    return object;
  }

  void create(Kind kind) {
    static constexpr std::size_t kSizes[] = {1, 300, 70'000, 3'000'000};
    Object object{kind, 0, kSizes[draw(4)] + draw(100)};
    std::size_t pitch = 0;
    void* host = nullptr;
    switch (kind) {
      case Kind::kAllocation:
        CHECK(cuMemAlloc(&object.base, object.bytes));
        break;
      case Kind::kPitched:
        CHECK(cuMemAllocPitch(&object.base, &pitch, 1 + draw(3000), 50, 4));
        object.bytes = pitch * 50;
        break;
      case Kind::kPool:
        CHECK(cuMemAllocAsync(&object.base, object.bytes, stream_));
        break;
      case Kind::kManaged:
        CHECK(cuMemAllocManaged(&object.base, object.bytes, CU_MEM_ATTACH_GLOBAL));
        break;
      case Kind::kHost:
        CHECK(cuMemHostAlloc(&host, object.bytes, CU_MEMHOSTALLOC_DEVICEMAP));
        object.base = reinterpret_cast<CUdeviceptr>(host);
        break;
      default:
        object = map(kind);
    }
    objects_.push_back(object);
  }

  void destroy(std::size_t which) {
    const Object object = objects_[which];
    objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(which));
    const std::size_t third = object.bytes / 3;
    switch (object.kind) {
      case Kind::kPool:
        CHECK(cuMemFreeAsync(object.base, stream_));
        break;
      case Kind::kHost:
        CHECK(cuMemFreeHost(reinterpret_cast<void*>(object.base)));
        break;
      case Kind::kMapped:
      case Kind::kExportable:
        CHECK(cuMemUnmap(object.base + third, third));
        CHECK(cuMemRelease(object.handle));
        CHECK(cuMemAddressFree(object.base, object.bytes));
        break;
      default:
        CHECK(cuMemFree(object.base));
    }
  }

  /// What an attribute's eight bytes say, in words that are the same in every run.
  std::string value_text(CUpointer_attribute attribute, CUdeviceptr asked, std::uint64_t value) {
    switch (attribute) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        return value == 0                                           ? "none"
               : value == reinterpret_cast<std::uint64_t>(context_) ? "current"
                                                                    : "other";
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return value == 0 ? "none" : joined("pool ", pools_(value));
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return joined("buffer ", buffers_(value));
      case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return joined("block ", blocks_(value));
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return value == 0 ? "none" : joined("-", std::to_string(asked - value));
      default:
        return std::to_string(value);
    }
  }

  /// All that can be asked about an address in `object`.
  std::string describe(CUdeviceptr address, const Object& object) {
    std::string text =
        joined(kNames[static_cast<int>(object.kind)], " +", std::to_string(address - object.base),
               " of ", std::to_string(object.bytes), ":");
    std::vector<CUpointer_attribute> asked;
    std::uint64_t values[32] = {};
    void* outputs[32] = {};
    for (int a = CU_POINTER_ATTRIBUTE_CONTEXT; a <= CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID; ++a) {
      const auto attribute = static_cast<CUpointer_attribute>(a);
      if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) continue;  // of kernel modules
      std::uint64_t value = 0;
      const CUresult result = cuPointerGetAttribute(&value, attribute, address);
      text += joined(" ", std::to_string(a), "=");
      text += result == CUDA_SUCCESS ? value_text(attribute, address, value) : error_name(result);
      outputs[asked.size()] = &values[asked.size()];
      asked.push_back(attribute);
    }
    CHECK(cuPointerGetAttributes(static_cast<unsigned>(asked.size()), asked.data(), outputs,
                                 address));
    text += " together:";
    for (std::size_t i = 0; i < asked.size(); ++i)
      text += joined(" ", value_text(asked[i], address, values[i]));
    text += joined(" nothing asked: ",
                   error_name(cuPointerGetAttributes(0, asked.data(), outputs, address)));
    outputs[1] = nullptr;
    text += joined(" nowhere to put it: ",
                   error_name(cuPointerGetAttributes(2, asked.data(), outputs, address)));
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    const CUresult range = cuMemGetAddressRange(&start, &bytes, address);
    text += joined(" range ", error_name(range));
    if (range == CUDA_SUCCESS)
      text += joined(" -", std::to_string(address - start), " ", std::to_string(bytes));
    return text + of_handle(address, object);
  }

  /// What is told of the handle that is mapped there.
  std::string of_handle(CUdeviceptr address, const Object& object) const {
    CUmemGenericAllocationHandle retained = 0;
    const CUresult result =
        cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(address));
    const std::string text = joined(" handle ", error_name(result));
    if (result != CUDA_SUCCESS) return text;
    CUmemAllocationProp prop = {};
    CHECK(cuMemGetAllocationPropertiesFromHandle(&prop, retained));
    CHECK(cuMemRelease(retained));
    unsigned long long flags = 77;
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {program_.device()}};
    CHECK(cuMemGetAccess(&flags, &here, address));
    return joined(text, retained == object.handle ? " its own" : " another", ", device ",
                  std::to_string(prop.location.id), " types ",
                  std::to_string(static_cast<int>(prop.requestedHandleTypes)), " access ",
                  std::to_string(flags));
  }

  Program& program_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr touched_ = 0;
  std::mt19937 random_{20};
  std::vector<Object> objects_;
  Names buffers_, blocks_, pools_;
};

}  // namespace

int main() {
  Program program;
  RandomProgram random(program);
  for (int round = 0; round < kRounds; ++round) random.round();
}
