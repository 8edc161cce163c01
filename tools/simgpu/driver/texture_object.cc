#include "tools/simgpu/driver/texture_object.h"

#include <map>
#include <mutex>
#include <shared_mutex>

namespace plexrl::simgpu {
namespace {

/// Objects of one kind. Numbers are never used twice, so that a stale one is recognised.
template <typename T>
class Objects {
 public:
  std::uint64_t add(const T& object) {
    const std::unique_lock lock(mutex_);
    living_[++last_] = std::make_shared<const T>(object);
    return last_;
  }
  std::shared_ptr<const T> find(std::uint64_t number) const {
    const std::shared_lock lock(mutex_);
    const auto found = living_.find(number);
    return found == living_.end() ? nullptr : found->second;
  }
  bool remove(std::uint64_t number) {
    const std::unique_lock lock(mutex_);
    return living_.erase(number) != 0;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<const T>> living_;
  std::uint64_t last_ = 0;
};

// Never destroyed: kernels may still look at exit.
auto& textures = *new Objects<TextureObject>;
auto& surfaces = *new Objects<SurfaceObject>;

}  // namespace

std::uint64_t add_texture(const TextureObject& texture) { return textures.add(texture); }
std::uint64_t add_surface(const SurfaceObject& surface) { return surfaces.add(surface); }
std::shared_ptr<const TextureObject> find_texture(std::uint64_t object) {
  return textures.find(object);
}
std::shared_ptr<const SurfaceObject> find_surface(std::uint64_t object) {
  return surfaces.find(object);
}
bool remove_texture(std::uint64_t object) { return textures.remove(object); }
bool remove_surface(std::uint64_t object) { return surfaces.remove(object); }

}  // namespace plexrl::simgpu
