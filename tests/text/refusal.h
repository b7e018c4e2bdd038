// SPDX-License-Identifier: MIT
// The message with which a reader refuses something.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.h"

namespace clearhead {

// "accepted" if it does not.
inline std::string Refusal(const std::function<void()>& load) {
  try {
    load();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

}  // namespace clearhead
