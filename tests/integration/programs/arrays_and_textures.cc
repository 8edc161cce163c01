// CUDA arrays, which the driver keeps, with textures and surfaces on them and on memory that is
// taken away.
#include "tests/integration/programs/memory_kinds.ptx.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kSide = 1024, kTexels = kSide * kSide;  // run_figures.py knows these sizes
constexpr int kWidth = kSide;
constexpr unsigned kWords = kTexels, kEntries = 1000;

CUarray make_array(CUarray_format format, unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = kSide;
  descriptor.Height = kSide;
  descriptor.Format = format;
  descriptor.NumChannels = 1;
  descriptor.Flags = flags;
  CUarray array;
  CHECK(cuArray3DCreate(&array, &descriptor));
  return array;
}

void copy_in(CUarray array, CUdeviceptr words, CUstream stream) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = words;
  copy.srcPitch = kSide * 4;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = kSide * 4;
  copy.Height = kSide;
  CHECK(cuMemcpy2DAsync(&copy, stream));
}

void print_array(const char* name, CUarray array) {
  std::vector<unsigned char> bytes(kTexels * 4);
  CHECK(cuMemcpyAtoH(bytes.data(), array, 0, bytes.size()));
  print_host(name, bytes.data(), bytes.size());
}

CUtexObject make_texture(const CUDA_RESOURCE_DESC& resource, CUfilter_mode filter, unsigned flags) {
  CUDA_TEXTURE_DESC description{};
  description.addressMode[0] = description.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  description.filterMode = filter;
  description.flags = flags;
  CUtexObject object;
  CHECK(cuTexObjectCreate(&object, &resource, &description, nullptr));
  return object;
}

}  // namespace

int main() {
  Program program;
  CUmodule module;
  CHECK(cuModuleLoadData(&module, memory_kinds_ptx));
  const auto kernel = [&](const char* name) {
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
  };
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUarray image = make_array(CU_AD_FORMAT_FLOAT, 0);
  const CUarray plane = make_array(CU_AD_FORMAT_UNSIGNED_INT32, CUDA_ARRAY3D_SURFACE_LDST);
  const CUdeviceptr words = allocate(kTexels * 4), table = allocate(kEntries * 4);

  std::vector<float> pixels(kTexels);
  for (std::size_t i = 0; i < kTexels; ++i)
    pixels[i] = static_cast<float>(hash32(static_cast<std::uint32_t>(i)) % 4096);
  CHECK(cuMemcpyHtoA(image, 0, pixels.data(), kTexels * 4));
  launch(program.kernel("fill"), kTexels / 4, stream, words, kTexels / 4, 12u);
  launch(program.kernel("fill"), kEntries / 4, stream, table, std::size_t{kEntries / 4}, 13u);
  copy_in(plane, words, stream);

  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = image;
  const CUtexObject image_texture = make_texture(resource, CU_TR_FILTER_MODE_LINEAR, 0);
  resource.res.array.hArray = plane;
  CUsurfObject surface;
  CHECK(cuSurfObjectCreate(&surface, &resource));
  resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {table, CU_AD_FORMAT_UNSIGNED_INT32, 1, kEntries * 4};
  const CUtexObject table_texture =
      make_texture(resource, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
  CHECK(cuStreamSynchronize(stream));
  program.pause();
  launch(kernel("blur"), kTexels, stream, words, image_texture, kWidth, kWords);
  launch(kernel("turn_over"), kTexels, stream, surface, kWidth, 5u, kWords);
  CHECK(cuStreamSynchronize(stream));
  print_device("blurred", words, kTexels * 4);
  program.pause();
  // The texture's memory is somewhere else by now, at the same address.
  launch(kernel("look_up"), kTexels, stream, words, table_texture, static_cast<int>(kEntries),
         kWords);
  launch(kernel("turn_over"), kTexels, stream, surface, kWidth, 6u, kWords);
  CHECK(cuStreamSynchronize(stream));
  print_device("looked up", words, kTexels * 4);
  print_array("turned over", plane);
  copy_in(plane, words, stream);
  CHECK(cuStreamSynchronize(stream));
  program.pause();
  print_array("copied in", plane);
  print_array("image", image);

  CHECK(cuTexObjectDestroy(table_texture));
  CHECK(cuTexObjectDestroy(image_texture));
  CHECK(cuSurfObjectDestroy(surface));
  CHECK(cuArrayDestroy(plane));
  CHECK(cuArrayDestroy(image));
  CHECK(cuMemFree(table));
  CHECK(cuMemFree(words));
  CHECK(cuStreamDestroy(stream));
  CHECK(cuModuleUnload(module));
}
