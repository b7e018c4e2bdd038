// SPDX-License-Identifier: MIT
#include "core/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace clearhead {
namespace {

constexpr std::size_t kMaxDepth = 64;

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Whether all of the text is one number.
template <typename Number>
bool IsNumber(std::string_view text, Number* number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

Json ResolvePlain(const std::string& text) {
  if (IsOneOf(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (IsOneOf(text, {"true", "True", "TRUE"})) return true;
  if (IsOneOf(text, {"false", "False", "FALSE"})) return false;
  // "inf" and "nan" are words here; YAML's own spelling has a dot that from_chars does not take.
  if (text.find_first_of("0123456789") == std::string::npos) return text;
  std::int64_t whole = 0;
  if (IsNumber(text, &whole)) return whole;
  double number = 0.0;
  if (IsNumber(text, &number) && std::isfinite(number)) return number;
  return text;
}

// Builds the document from the parser's events.
class DocumentBuilder final : public YAML::EventHandler {
 public:
  explicit DocumentBuilder(std::string_view source) : source_(source) {}

  Json Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Add(mark, nullptr); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Refuse(mark, "an alias"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    RefuseTag(mark, tag);
    if (WantsKey()) return TakeKey(mark, value);
    Add(mark, tag == "!" ? Json(value) : ResolvePlain(value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    Open(mark, Json::array());
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    RefuseTag(mark, tag);
    Open(mark, Json::object());
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Container {
    Json* value;
    std::optional<std::string> key = {};  // of a mapping, when its value comes next
    std::unordered_set<std::string> keys = {};
  };

  bool WantsKey() const {
    return !open_.empty() && open_.back().value->is_object() && !open_.back().key;
  }
  void TakeKey(const YAML::Mark& mark, const std::string& key) {
    if (!open_.back().keys.insert(key).second) Refuse(mark, fmt::format("the key '{}' twice", key));
    open_.back().key = key;
  }
  // The address stays good while the value is open: its parent grows only after it is closed.
  Json* Add(const YAML::Mark& mark, Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (WantsKey()) Refuse(mark, "a key that is no text");
    Container& parent = open_.back();
    if (parent.value->is_array()) {
      return &parent.value->get_ref<Json::array_t&>().emplace_back(std::move(value));
    }
    Json* place = &parent.value->get_ref<Json::object_t&>()
                       .emplace_back(*std::exchange(parent.key, {}), std::move(value))
                       .second;
    return place;
  }
  void Open(const YAML::Mark& mark, Json value) {
    if (open_.size() == kMaxDepth) {
      Refuse(mark, fmt::format("values nested deeper than {} levels", kMaxDepth));
    }
    Json* place = Add(mark, std::move(value));
    open_.push_back({.value = place});
  }
  void RefuseTag(const YAML::Mark& mark, const std::string& tag) const {
    if (!IsOneOf(tag, {"", "?", "!"})) Refuse(mark, fmt::format("the tag '{}'", tag));
  }
  [[noreturn]] void Refuse(const YAML::Mark& mark, std::string_view what) const {
    Fail("{}: line {} has {}", source_, mark.line + 1, what);
  }

  std::string_view source_;
  Json root_;
  std::vector<Container> open_;  // outermost first
};

// Text that every reader takes for text, whichever version of YAML it knows.
bool IsPlainText(std::string_view text) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789./-";
  if (text.empty() || kLetters.find(text[0]) >= kLetters.find('0')) return false;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find_first_not_of(kLetters) == std::string_view::npos &&
         !IsOneOf(lower, {"null", "true", "false", "yes", "no", "on", "off", "y", "n"});
}

std::string ScalarText(const Json& value) {
  Check(value.is_primitive(), "YAML is written of scalars and lists of them");
  if (value.is_string() && IsPlainText(value.get_ref<const std::string&>())) {
    return value.get<std::string>();
  }
  return ToText(value, -1);  // a JSON scalar is a YAML scalar
}

}  // namespace

Json ParseYaml(std::string_view text, std::string_view source) {
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    DocumentBuilder builder(source), second(source);
    parser.HandleNextDocument(builder);
    // At most once more: on some texts the library never comes to the end of the documents.
    if (parser.HandleNextDocument(second)) Fail("{}: holds more than one document", source);
    return builder.Take();
  } catch (const YAML::Exception& error) {
    Fail("{}: not valid YAML at line {}, column {}", source, error.mark.line + 1,
         error.mark.column + 1);
  }
}

Json ReadYamlFile(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return ParseYaml(ReadFile(path, max_bytes), path.string());
}

std::string ToYaml(const Json& mapping) {
  std::string text;
  for (const auto& [key, value] : mapping.items()) {
    if (!value.is_array()) {
      text += fmt::format("{}: {}\n", key, ScalarText(value));
      continue;
    }
    text += key + ":\n";
    for (const Json& item : value) text += fmt::format("- {}\n", ScalarText(item));
  }
  return text;
}

}  // namespace clearhead
