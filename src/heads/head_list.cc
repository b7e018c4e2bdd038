// SPDX-License-Identifier: MIT
#include "heads/head_list.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

#include "core/error.h"
#include "core/json.h"

namespace clearhead {
namespace {

constexpr std::string_view kTop = "top:", kCircuit = "circuit:";

HeadId ParseOne(std::string_view text, std::string_view source, std::int64_t layers,
                std::int64_t heads) {
  const std::optional<HeadId> id = ParseHead(text);
  if (!id) Fail("{}: '{}' is not a head; write L5H1, 5.1 or a5.h1", source, text);
  if (id->layer >= layers || id->head >= heads) {
    Fail("{}: there is no head {}; the model has {} layers of {} heads, L0H0 to {}", source,
         ToText(*id), layers, heads, ToText(HeadId{layers - 1, heads - 1}));
  }
  return *id;
}

std::vector<HeadId> FromCircuit(const std::string& path, std::int64_t layers, std::int64_t heads) {
  const Json json = ReadJsonFile(path);
  const auto list = json.is_object() ? json.find("heads") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array() || list->empty()) {
    Fail("{}: expected an object with a non-empty array 'heads', as clearhead circuit writes it",
         path);
  }
  std::size_t count = list->size();
  if (const auto at_90 = json.find("at_90"); at_90 != json.end()) {
    if (!at_90->is_number_unsigned() || at_90->get<std::uint64_t>() < 1 ||
        at_90->get<std::uint64_t>() > count) {
      Fail("{}: 'at_90' is {}, expected a number of heads from 1 to {}", path, ToText(*at_90, -1),
           count);
    }
    count = at_90->get<std::size_t>();
  }
  std::vector<HeadId> result;
  for (std::size_t i = 0; i < count; ++i) {
    const Json& entry = (*list)[i];
    const auto head = entry.is_object() ? entry.find("head") : entry.end();
    if (!entry.is_object() || head == entry.end() || !head->is_string()) {
      Fail("{}: entry {} of 'heads' has no 'head' such as \"L5H1\"", path, i);
    }
    result.push_back(ParseOne(head->get<std::string>(), path, layers, heads));
  }
  return result;
}

}  // namespace

std::vector<HeadId> AllHeads(std::int64_t layers, std::int64_t heads) {
  std::vector<HeadId> all;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t head = 0; head < heads; ++head) all.push_back({layer, head});
  }
  return all;
}

std::vector<HeadId> ParseHeadList(std::string_view text, std::int64_t layers, std::int64_t heads,
                                  const std::function<std::vector<HeadId>()>& by_importance) {
  if (text == "all") return AllHeads(layers, heads);
  if (text.starts_with(kTop)) {
    const std::string_view number = text.substr(kTop.size());
    std::size_t count = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    if (error != std::errc() || end != number.data() + number.size() || count == 0) {
      Fail("--heads {}: '{}' is not a number of heads from 1 on", text, number);
    }
    std::vector<HeadId> best = by_importance();
    if (count > best.size()) Fail("--heads {}: the model has only {} heads", text, best.size());
    best.resize(count);
    return best;
  }
  std::vector<HeadId> result;
  if (text.starts_with(kCircuit)) {
    result = FromCircuit(std::string(text.substr(kCircuit.size())), layers, heads);
  } else {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t comma = std::min(text.find(',', begin), text.size());
      result.push_back(ParseOne(text.substr(begin, comma - begin), "--heads", layers, heads));
      begin = comma + 1;
    }
  }
  std::set<HeadId> seen;
  for (const HeadId id : result) {
    if (!seen.insert(id).second) Fail("--heads {}: {} is named twice", text, ToText(id));
  }
  return result;
}

}  // namespace clearhead
