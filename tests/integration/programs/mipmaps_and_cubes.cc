// Mipmapped, layered and cube arrays, which the driver keeps, beside memory that is taken away:
// written and read by kernels through surfaces and textures, and compared with what the host
// computes.
#include "tests/integration/programs/memory_kinds.ptx.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kSide = 1024, kLevels = 6;  // of the pyramid
constexpr std::size_t kPlane = 256, kPlanes = 5;  // the layered array
constexpr std::size_t kFace = 64, kFaces = 6;     // the cube

struct Kernels {
  CUmodule module;
  CUfunction operator()(const char* name) const {
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
  }
};

CUDA_ARRAY3D_DESCRIPTOR described(std::size_t side, std::size_t depth, CUarray_format format,
                                  unsigned flags) {
  return {side, side, depth, format, 1, flags};
}

CUtexObject make_texture(const CUDA_RESOURCE_DESC& resource, unsigned flags) {
  CUDA_TEXTURE_DESC description{};
  for (CUaddress_mode& mode : description.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
  description.flags = flags;
  description.maxMipmapLevelClamp = kLevels;
  CUtexObject object;
  CHECK(cuTexObjectCreate(&object, &resource, &description, nullptr));
  return object;
}

CUDA_RESOURCE_DESC resource_of(CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

/// `slices` planes of `side` × `side` words.
void copy_in(CUarray array, const void* words, std::size_t side, std::size_t slices) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = words;
  copy.srcPitch = side * 4;
  copy.srcHeight = side;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = side * 4;
  copy.Height = side;
  copy.Depth = slices;
  CHECK(cuMemcpy3D(&copy));
}

template <typename T>
void compare(const char* name, const std::vector<T>& expected, CUdeviceptr words) {
  std::vector<T> seen(expected.size());
  CHECK(cuCtxSynchronize());
  CHECK(cuMemcpyDtoH(seen.data(), words, seen.size() * sizeof(T)));
  std::printf("%s: %s\n", name, seen == expected ? "as the host has it" : "WRONG");
  print_host(name, seen.data(), seen.size() * sizeof(T));
  if (seen != expected) std::exit(1);
}

/// Each level from the one above, as `halve` makes it.
std::vector<float> halved(const std::vector<float>& above, std::size_t side) {
  std::vector<float> level;
  for (std::size_t y = 0; y < side; ++y) {
    for (std::size_t x = 0; x < side; ++x) {
      const float* const top = &above[4 * side * y + 2 * x];
      const float* const bottom = top + 2 * side;
      level.push_back(((top[0] + top[1]) + (bottom[0] + bottom[1])) * 0.1875f);
    }
  }
  return level;
}

void pyramid(Program& program, const Kernels& kernel, CUdeviceptr words) {
  const auto shape = described(kSide, 0, CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_SURFACE_LDST);
  CUmipmappedArray mipmapped;
  CHECK(cuMipmappedArrayCreate(&mipmapped, &shape, kLevels));
  std::vector<std::vector<float>> expected(1);
  for (std::size_t i = 0; i < kSide * kSide; ++i)
    expected[0].push_back(static_cast<float>(hash32(static_cast<std::uint32_t>(i)) % 4096));
  CUarray level;
  CHECK(cuMipmappedArrayGetLevel(&level, mipmapped, 0));
  copy_in(level, expected[0].data(), kSide, 1);
  program.pause();
  for (unsigned n = 1; n < kLevels; ++n) {
    const std::size_t side = kSide >> n;
    CUsurfObject surfaces[2];
    for (unsigned i = 0; i < 2; ++i) {
      CHECK(cuMipmappedArrayGetLevel(&level, mipmapped, n - 1 + i));
      const CUDA_RESOURCE_DESC resource = resource_of(level);
      CHECK(cuSurfObjectCreate(&surfaces[i], &resource));
    }
    launch(kernel("halve"), side * side, nullptr, surfaces[0], surfaces[1], static_cast<int>(side),
           static_cast<unsigned>(side * side));
    CHECK(cuCtxSynchronize());
    for (const CUsurfObject surface : surfaces) CHECK(cuSurfObjectDestroy(surface));
    expected.push_back(halved(expected.back(), side));
  }
  program.pause();
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmapped;
  const CUtexObject texture = make_texture(resource, CU_TRSF_NORMALIZED_COORDINATES);
  for (unsigned n = 0; n < kLevels; ++n) {
    const std::size_t side = kSide >> n;
    launch(kernel("read_level"), side * side, nullptr, words, texture, static_cast<float>(n),
           static_cast<int>(side), static_cast<unsigned>(side * side));
    compare("level", expected[n], words);
  }
  CHECK(cuTexObjectDestroy(texture));
  CHECK(cuMipmappedArrayDestroy(mipmapped));
}

void layers(Program& program, const Kernels& kernel, CUdeviceptr words) {
  constexpr std::size_t kTexels = kPlane * kPlane * kPlanes;
  const auto shape = described(kPlane, kPlanes, CU_AD_FORMAT_UNSIGNED_INT32,
                               CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST);
  CUarray array;
  CHECK(cuArray3DCreate(&array, &shape));
  std::vector<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < kTexels; ++i) expected.push_back(hash32(i + 3));
  copy_in(array, expected.data(), kPlane, kPlanes);
  const CUDA_RESOURCE_DESC resource = resource_of(array);
  CUsurfObject surface;
  CHECK(cuSurfObjectCreate(&surface, &resource));
  const CUtexObject texture = make_texture(resource, CU_TRSF_READ_AS_INTEGER);
  for (int round = 0; round < 2; ++round) {
    program.pause();
    launch(kernel("add_layer"), kTexels, nullptr, surface, static_cast<int>(kPlane),
           static_cast<unsigned>(kTexels));
    for (std::size_t i = 0; i < kTexels; ++i)
      expected[i] += static_cast<std::uint32_t>(i / (kPlane * kPlane));
  }
  launch(kernel("read_layers"), kTexels, nullptr, words, texture, static_cast<int>(kPlane),
         static_cast<unsigned>(kTexels));
  compare("layers", expected, words);
  CHECK(cuTexObjectDestroy(texture));
  CHECK(cuSurfObjectDestroy(surface));
  CHECK(cuArrayDestroy(array));
}

/// The direction to texel (x, y) of a face ("Cubemap Textures", CUDA C++ programming guide).
void add_direction(std::size_t face, std::size_t x, std::size_t y, std::vector<float>* out) {
  const float s = (2 * static_cast<float>(x) + 1) / kFace - 1;
  const float t = (2 * static_cast<float>(y) + 1) / kFace - 1;
  const float all[kFaces][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t},
                                {s, -1, -t}, {s, -t, 1},  {-s, -t, -1}};
  out->insert(out->end(), all[face], all[face] + 3);
}

void cube(Program& program, const Kernels& kernel, CUdeviceptr words) {
  constexpr std::size_t kTexels = kFace * kFace * kFaces;
  const auto shape = described(kFace, kFaces, CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_CUBEMAP);
  CUarray array;
  CHECK(cuArray3DCreate(&array, &shape));
  std::vector<float> expected, directions;
  for (std::size_t i = 0; i < kTexels; ++i) {
    expected.push_back(static_cast<float>(hash32(static_cast<std::uint32_t>(i)) % 8192));
    add_direction(i / (kFace * kFace), i % kFace, i / kFace % kFace, &directions);
  }
  copy_in(array, expected.data(), kFace, kFaces);
  const CUdeviceptr device_directions = allocate(directions.size() * 4);
  CHECK(cuMemcpyHtoD(device_directions, directions.data(), directions.size() * 4));
  const CUtexObject texture = make_texture(resource_of(array), CU_TRSF_NORMALIZED_COORDINATES);
  program.pause();
  launch(kernel("look_around"), kTexels, nullptr, words, texture, device_directions,
         static_cast<unsigned>(kTexels));
  compare("cube", expected, words);
  CHECK(cuTexObjectDestroy(texture));
  CHECK(cuMemFree(device_directions));
  CHECK(cuArrayDestroy(array));
}

}  // namespace

int main() {
  Program program;
  Kernels kernel{};
  CHECK(cuModuleLoadData(&kernel.module, memory_kinds_ptx));
  const CUdeviceptr words = allocate(kSide * kSide * 4);
  pyramid(program, kernel, words);
  layers(program, kernel, words);
  cube(program, kernel, words);
  CHECK(cuMemFree(words));
  CHECK(cuModuleUnload(kernel.module));
}
