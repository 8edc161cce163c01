#include "interpose/elf_image.h"

#include <ftw.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace plexrl::interpose {
namespace {

TEST(ElfImage, FindsALoadedObjectByTheStartOfItsFileName) {
  const ElfImage libc = ElfImage::loaded("libc.so");
  ASSERT_TRUE(libc);
  EXPECT_EQ(libc.file_name(), "libc.so.6");
  EXPECT_TRUE(libc.is("libc.so"));
  EXPECT_FALSE(libc.is("libc.so.7"));
}

TEST(ElfImage, FindsNothingThatIsNotLoaded) {
  EXPECT_FALSE(ElfImage::loaded("libcuda.so"));
  EXPECT_EQ(ElfImage().symbol("getppid"), nullptr);
}

TEST(ElfImage, FindsDefinedSymbolsOnly) {
  const ElfImage libc = ElfImage::loaded("libc.so");
  EXPECT_EQ(libc.symbol("getppid"), reinterpret_cast<void*>(&getppid));
  EXPECT_EQ(libc.symbol("no_such_function"), nullptr);
  EXPECT_EQ(libc.symbol("_dl_find_dso_for_object"), nullptr) << "defined by ld.so, used by libc";
}

// Functions whose meaning once changed have an old version under the same name.
TEST(ElfImage, PrefersTheDefaultVersion) {
  const ElfImage libc = ElfImage::loaded("libc.so");
  EXPECT_EQ(libc.symbol("nftw"), reinterpret_cast<void*>(&nftw));
}

TEST(ElfImage, FindsTheObjectOfAnAddress) {
  const ElfImage libc = ElfImage::loaded("libc.so");
  EXPECT_TRUE(ElfImage::containing(libc.symbol("getppid")) == libc);
  int on_the_stack = 0;
  EXPECT_FALSE(ElfImage::containing(&on_the_stack));
}

TEST(ElfImage, FindsTheObjectThatDefinesASymbol) {
  const ElfImage libc = ElfImage::loaded("libc.so");
  EXPECT_TRUE(ElfImage::defining("nftw", nullptr) == libc);
  EXPECT_FALSE(ElfImage::defining("nftw", libc.symbol("getppid"))) << "but not there";
  EXPECT_FALSE(ElfImage::defining("no_such_function", nullptr));
}

TEST(ElfImage, KnowsTheLoadOrder) {
  static int in_the_program;
  void* const in_libc = ElfImage::loaded("libc.so").symbol("getppid");
  EXPECT_TRUE(ElfImage::is_later(in_libc, &in_the_program));
  EXPECT_FALSE(ElfImage::is_later(&in_the_program, in_libc));
  EXPECT_FALSE(ElfImage::is_later(in_libc, in_libc));
}

}  // namespace
}  // namespace plexrl::interpose
