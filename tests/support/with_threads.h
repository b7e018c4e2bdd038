// SPDX-License-Identifier: MIT
// Tests that run with several numbers of threads, more than items and more than cores included.
#pragma once

#include <gtest/gtest.h>

#include "core/threads.h"

namespace clearhead {

// The number from before is put back.
class ThreadsForTest {
 public:
  explicit ThreadsForTest(int count) { SetThreads(count); }
  ~ThreadsForTest() { SetThreads(before_); }
  ThreadsForTest(const ThreadsForTest&) = delete;
  ThreadsForTest& operator=(const ThreadsForTest&) = delete;

 private:
  int before_ = Threads();
};

// The parameter is the number of threads; the number from before is put back.
class WithThreads : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetThreads(GetParam()); }
  void TearDown() override { SetThreads(before_); }

 private:
  int before_ = Threads();
};

}  // namespace clearhead
