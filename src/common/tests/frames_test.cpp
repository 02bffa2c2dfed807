#include "common/frames.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace doorbuster::common::detail {
namespace {

/// Writes to all of it, so that a sanitizer sees whether it is there.
void* filled(std::size_t size) {
  void* const frame = take_frame(size);
  std::memset(frame, 0x5A, size);
  return frame;
}

TEST(Frames, AreWholeAndApartForEverySize) {
  for (const std::size_t size : {1U, 63U, 64U, 65U, 1000U, 4095U, 4096U, 4097U, 100'000U}) {
    std::set<void*> seen;
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<void*> frames;
      for (int i = 0; i < 50; ++i) frames.push_back(filled(size));
      EXPECT_EQ(std::set<void*>(frames.begin(), frames.end()).size(), 50U) << size;
      for (void* const frame : frames) give_frame(frame, size);
    }
  }
}

TEST(Frames, OfManyMoreThanAreKeptAreFreed) {
  std::vector<void*> frames;
  for (int i = 0; i < 20'000; ++i) frames.push_back(filled(1024));
  for (void* const frame : frames) give_frame(frame, 1024);
  void* const one = filled(1000);
  give_frame(one, 1000);
}

TEST(Frames, MayBeGivenBackByAnotherThreadAndOutliveTheirOwn) {
  std::vector<void*> frames;
  std::thread([&] {
    for (int i = 0; i < 100; ++i) frames.push_back(filled(256));
    give_frame(filled(256), 256);
  }).join();
  std::thread([&] {
    for (void* const frame : frames) give_frame(frame, 256);
  }).join();
}

}  // namespace
}  // namespace doorbuster::common::detail
