// SPDX-License-Identifier: MIT
#include "core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

void ExpectError(std::string_view text, const std::string& part) {
  EXPECT_THAT([&] { ParseJson(text, "some.json"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("some.json"), HasSubstr(part))))
      << text;
}

TEST(Json, ErrorsNameSourceLineAndColumn) {
  ExpectError("", "line 1, column");
  ExpectError("x", "line 1, column 1");
  ExpectError("{\"a\": 1,}", "line 1, column 9");
  ExpectError("{\n  \"a\": x\n}", "line 2, column 8");
  ExpectError("{\n\"a\": [1,\n2 3]}", "line 3, column 3");
  ExpectError("{\"a\": 1", "line 1, column");
  ExpectError("\"\xff\"", "not valid JSON");
  ExpectError("\"\\ud800\"", "not valid JSON");
  ExpectError("{} {}", "line 1, column 4");
  ExpectError("NaN", "not valid JSON");
  ExpectError("1e999", "not valid JSON");
}

TEST(Json, ANulByteDoesNotEndTheText) {
  using std::string_literals::operator""s;
  ExpectError("{}\0{}"s, "not valid JSON");
  ExpectError("[1]\0"s, "not valid JSON");
}

TEST(Json, DuplicateKeysAreRefusedPerObject) {
  ExpectError(R"({"a":1,"b":2,"a":3})", "'a'");
  ExpectError(R"({"x":[{"k":{"a":1,"a":1}}]})", "'a'");
  ExpectError(R"({"a":1,"\u0061":2})", "'a'");  // the same key, spelled with an escape
  // Equal keys in different objects, before and after nested ones, are no duplicates.
  EXPECT_EQ(ParseJson(R"({"a":{"a":{"a":1},"b":2},"b":[{"a":3},{"a":4}]})", "s")["b"][1]["a"], 4);
}

TEST(Json, NestingDeeperThan64IsRefused) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + "1" +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_NO_THROW(ParseJson(nested(64), "s"));
  ExpectError(nested(65), "nested deeper");
  ExpectError(nested(100'000), "nested deeper");
  ExpectError(std::string(1'000'000, '['), "nested deeper");
}

TEST(Json, KeepsOrderAndNumbers) {
  const std::string text =
      R"({"z":1,"a":-9223372036854775808,"m":18446744073709551615,"d":0.1,"e":1e-07,"t":"é\n\u0001","n":null,"b":[true,false,{}]})";
  const Json value = ParseJson(text, "s");
  EXPECT_EQ(ParseJson(ToText(value), "s"), value);
  EXPECT_EQ(ToText(value, -1), text);
  EXPECT_EQ(value["m"].get<std::uint64_t>(), ~std::uint64_t{0});
}

TEST(Json, FilesRoundTrip) {
  const TemporaryFolder folder;
  const Json value = {{"name", "clearhead"}, {"list", {1, 2.5, "three"}}};
  WriteJsonFile(folder / "a.json", value);
  EXPECT_EQ(ReadJsonFile(folder / "a.json"), value);
  const std::string text = ReadFile(folder / "a.json");
  EXPECT_TRUE(text.starts_with("{\n  \"name\""));
  EXPECT_TRUE(text.ends_with("}\n"));
  EXPECT_THAT([&] { ReadJsonFile(folder / "a.json", 5); },
              ThrowsMessage<Error>(HasSubstr("a.json")));
  WriteFile(folder / "bad.json", "{\n]");
  EXPECT_THAT([&] { ReadJsonFile(folder / "bad.json"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("bad.json"), HasSubstr("line 2, column 1"))));
}

TEST(Json, InvalidUtf8IsReplacedWhenWritten) {
  EXPECT_EQ(ToText(Json("a\xff"), -1), "\"a\xef\xbf\xbd\"");
}

// A vocabulary is an object of 50,257 keys; a search per inserted key is quadratic.
TEST(Json, ManyKeysAreReadInLinearTime) {
  std::string text = "{";
  constexpr int kKeys = 200'000;
  for (int i = 0; i < kKeys; ++i) text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":1";
  text += "}";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ParseJson(text, "s").size(), static_cast<std::size_t>(kKeys));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count(), 5.0);  // the quadratic reader took 56 s
}

}  // namespace
}  // namespace clearhead
