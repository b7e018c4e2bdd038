// SPDX-License-Identifier: MIT
// The tests run as the program does: with a pool of all cores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/threads.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  clearhead::ThreadPool pool(clearhead::AvailableCores());
  const clearhead::ThreadScope scope(&pool);
  return RUN_ALL_TESTS();
}
