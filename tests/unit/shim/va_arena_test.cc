#include "shim/va_arena.h"

#include <gtest/gtest.h>

namespace plexrl::shim {
namespace {

TEST(VaArena, TakesFromTheFirstPartThatIsLongEnough) {
  VaArena arena;
  arena.add(0x1000, 0x100);
  arena.add(0x2000, 0x1000);
  EXPECT_EQ(arena.take(0x200), 0x2000u);
  EXPECT_EQ(arena.take(0x100), 0x1000u);
  EXPECT_FALSE(arena.take(0x1000));
}

TEST(VaArena, NeighboursAreJoinedWhenTheyComeBack) {
  VaArena arena;
  arena.add(0, 0x300);
  const auto a = arena.take(0x100);
  const auto b = arena.take(0x100);
  const auto c = arena.take(0x100);
  arena.put(*a, 0x100);
  arena.put(*c, 0x100);
  EXPECT_FALSE(arena.take(0x300));
  arena.put(*b, 0x100);
  EXPECT_EQ(arena.take(0x300), 0u);
  EXPECT_EQ(arena.free_bytes(), 0u);
}

TEST(VaArena, JustTheseAddressesAreTakenOrNothing) {
  VaArena arena;
  arena.add(0x1000, 0x300);
  ASSERT_TRUE(arena.take_at(0x1100, 0x100));
  EXPECT_FALSE(arena.take_at(0x1100, 0x100));
  EXPECT_FALSE(arena.take_at(0x1000, 0x200));
  EXPECT_FALSE(arena.take_at(0x1200, 0x200));
  EXPECT_FALSE(arena.take_at(0x800, 0x100));
  EXPECT_TRUE(arena.take_at(0x1200, 0x100));
  EXPECT_TRUE(arena.take_at(0x1000, 0x100));
  EXPECT_EQ(arena.free_bytes(), 0u);
  arena.put(0x1000, 0x300);
  EXPECT_EQ(arena.take(0x300), 0x1000u);
}

}  // namespace
}  // namespace plexrl::shim
