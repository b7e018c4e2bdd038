// SPDX-License-Identifier: MIT
// The words that task prompts are made of: common ones, so that most tokenizers have a token for
// each.
#pragma once

#include <span>
#include <string_view>

namespace clearhead {

struct OppositePair {
  std::string_view word, opposite;
};

std::span<const std::string_view> TaskNames();    // of people
std::span<const std::string_view> TaskObjects();  // that can be given
std::span<const std::string_view> TaskPlaces();
std::span<const std::string_view> TaskEvents();  // that last for years
std::span<const std::string_view> TaskNouns();   // for lists
std::span<const OppositePair> TaskOpposites();

}  // namespace clearhead
