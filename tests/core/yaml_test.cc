// SPDX-License-Identifier: MIT
#include "core/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace clearhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

void ExpectError(const std::string& text, const std::string& part) {
  EXPECT_THAT([&] { ParseYaml(text, "some.yaml"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("some.yaml"), HasSubstr(part))))
      << text.substr(0, 100);
}

TEST(Yaml, ScalarsAreWhatTheyLookLike) {
  const Json json = ParseYaml(
      "whole: 17\nnegative: -3\nnumber: 2.5e-3\ntext: hook_mlp_out\nquoted: \"17\"\nyes: true\n"
      "none:\ntilde: ~\nlist:\n- 1\n- a b\nflow: {x: [1, 2]}\nword: nan\n# remark\n",
      "some.yaml");
  EXPECT_EQ(json, Json({{"whole", 17},
                        {"negative", -3},
                        {"number", 0.0025},
                        {"text", "hook_mlp_out"},
                        {"quoted", "17"},
                        {"yes", true},
                        {"none", nullptr},
                        {"tilde", nullptr},
                        {"list", Json::array({1, "a b"})},
                        {"flow", {{"x", Json::array({1, 2})}}},
                        {"word", "nan"}}));
  EXPECT_TRUE(ParseYaml("", "some.yaml").is_null());
  EXPECT_EQ(ParseYaml("1e999", "some.yaml"), "1e999");
  EXPECT_EQ(ParseYaml("99999999999999999999", "some.yaml"), 1e20);
}

TEST(Yaml, ErrorsNameSourceAndLine) {
  ExpectError("a: [1,\nb: 2", "not valid YAML at line");
  ExpectError("a: 1\n\tb: 2", "line 2");
  ExpectError("a: 1\na: 2", "line 2 has the key 'a' twice");
  ExpectError("? [a, b]\n: 1", "a key that is no text");
  ExpectError("a: &x 1\nb: *x", "line 2 has an alias");
  ExpectError("a: 1\n---\nb: 2", "more than one document");
  ExpectError(",5],\"data", "some.yaml");  // yaml-cpp's own LoadAll never ends on this
  ExpectError("a: !!python/object:os.system x", "the tag");
  ExpectError(std::string(70, '[') + std::string(70, ']'), "deeper than 64");
  ExpectError(std::string(100000, '['), "some.yaml");
}

TEST(Yaml, WhatIsWrittenComesBack) {
  const Json json = {{"kind", "cross_layer_transcoder"},
                     {"hash", "1234567890123456"},
                     {"exponent", "12e4567890123456"},
                     {"odd", "a: \"b\" #c\nd"},
                     {"yes", "no"},
                     {"empty", ""},
                     {"k", 6},
                     {"list", Json::array({"layer_0.safetensors", "1"})}};
  EXPECT_EQ(ParseYaml(ToYaml(json), "some.yaml"), json);
  EXPECT_THAT(ToYaml(json), testing::StartsWith("kind: cross_layer_transcoder\nhash: \"1234"));
}

}  // namespace
}  // namespace clearhead
