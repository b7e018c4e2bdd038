// SPDX-License-Identifier: MIT
// Options of a command, as CLI11 has them and under its names, without its headers: those cost
// seconds in every file that sees them, and only options.cc, main.cc and run_command.cc need to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace clearhead::cli {

// Judges or changes one value before it is stored.
struct ValueCheck {
  std::shared_ptr<const CLI::Validator> validator;
};

ValueCheck Range(int least, int most);
ValueCheck Range(std::int64_t least, std::int64_t most);
ValueCheck Range(double least, double most);
ValueCheck IsMember(std::vector<std::string> values);
// 20M with {"M", 1000000} is 20000000.
ValueCheck NumberWithUnit(std::map<std::string, std::int64_t> units);
// `judge` returns what is wrong with the text, or nothing.
ValueCheck Judge(std::function<std::string(const std::string&)> judge);

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* check(const ValueCheck& check);
  Option* transform(const ValueCheck& check);
  Option* required();
  Option* excludes(const Option* other);
  Option* delimiter(char separator);
  // false: a list takes one value each time it is named.
  Option* allow_extra_args(bool allow);
  std::size_t count() const;  // how often it was given

 private:
  CLI::Option* option_;
};

// Options live as long as their command; the program keeps its commands (AddCommand).
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // T: int, std::int64_t, std::uint64_t, float, double, std::string, or a vector of strings. A name
  // without dashes is a positional argument.
  template <typename T>
  Option* add_option(const std::string& name, T& value, const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);
  void footer(const std::string& text);
  void callback(std::function<void()> run);

 private:
  CLI::App* app_;
  std::deque<Option> options_;
};

std::shared_ptr<Command> AddSubcommand(CLI::App& app, const std::string& name,
                                       const std::string& description);

// A word in front of commands of its own, as in `clearhead features train`: add them to what this
// returns.
CLI::App& AddGroup(CLI::App& app, const std::string& name, const std::string& description);

}  // namespace clearhead::cli
