// SPDX-License-Identifier: MIT
// Tests that run with several numbers of threads, more than items and more than cores included.
#pragma once

#include <gtest/gtest.h>

#include "core/threads.h"

namespace clearhead {

// While it lives, the test runs with a pool of its own.
class UseThreads {
 public:
  explicit UseThreads(int count) : pool_(count), scope_(&pool_) {}

 private:
  ThreadPool pool_;
  ThreadScope scope_;
};

// The parameter is the number of threads.
class WithThreads : public ::testing::TestWithParam<int> {
 private:
  UseThreads threads_{GetParam()};
};

}  // namespace clearhead
