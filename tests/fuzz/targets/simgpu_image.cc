// Images that a job loads into the simulated GPU: fat binaries in each packing, and what its linker
// makes. They may be refused, and nothing behind their end is read.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/simgpu/driver/fat_binary.h"
#include "tools/simgpu/driver/image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plexrl::simgpu;
  if (size < 4) return 0;
  // A copy of exactly this size, so that a sanitizer sees a byte too many.
  const std::vector<std::uint8_t> image(data, data + size);
  if (is_fat_binary(image.data())) {
    std::vector<FatFile> files;
    if (!read_fat_binary(image.data(), image.size(), &files)) return 0;
    for (const FatFile& file : files) {
      std::string text;
      unpack(file, &text);
    }
    return 0;
  }
  if (image[0] == 0x7f) return 0;  // machine code is refused with a line on stderr
  std::vector<std::string> sources;
  read_image(image.data(), image.size(), 75, &sources);
  std::size_t bytes = 0;
  for (const std::string& source : sources) bytes += source.size();
  if (bytes > size) std::abort();
  return 0;
}
