// SPDX-License-Identifier: MIT
#include "cli/options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace clearhead::cli {
namespace {

template <typename Validator>
ValueCheck Hold(Validator validator) {
  // As the base: CLI11's validators differ in what their constructors put there.
  return {std::make_shared<const CLI::Validator>(std::move(validator))};
}

}  // namespace

ValueCheck Range(int least, int most) { return Hold(CLI::Range(least, most)); }
ValueCheck Range(std::int64_t least, std::int64_t most) { return Hold(CLI::Range(least, most)); }
ValueCheck Range(double least, double most) { return Hold(CLI::Range(least, most)); }
ValueCheck IsMember(std::vector<std::string> values) {
  return Hold(CLI::IsMember(std::move(values)));
}
ValueCheck NumberWithUnit(std::map<std::string, std::int64_t> units) {
  return Hold(CLI::AsNumberWithUnit(std::move(units)));
}
ValueCheck Judge(std::function<std::string(const std::string&)> judge) {
  return Hold(
      CLI::Validator([judge = std::move(judge)](std::string& text) { return judge(text); }, ""));
}

Option* Option::check(const ValueCheck& check) {
  option_->check(*check.validator);
  return this;
}
Option* Option::transform(const ValueCheck& check) {
  option_->transform(*check.validator);
  return this;
}
Option* Option::required() {
  option_->required();
  return this;
}
Option* Option::excludes(const Option* other) {
  option_->excludes(other->option_);
  return this;
}
Option* Option::delimiter(char separator) {
  option_->delimiter(separator);
  return this;
}
Option* Option::allow_extra_args(bool allow) {
  option_->allow_extra_args(allow);
  return this;
}
std::size_t Option::count() const { return option_->count(); }

template <typename T>
Option* Command::add_option(const std::string& name, T& value, const std::string& help) {
  return &options_.emplace_back(app_->add_option(name, value, help));
}
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option* Command::add_option(const std::string&, float&, const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);
template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<double>&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&,
                                     const std::string&);

Option* Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return &options_.emplace_back(app_->add_flag(name, value, help));
}
void Command::footer(const std::string& text) { app_->footer(text); }
void Command::callback(std::function<void()> run) { app_->callback(std::move(run)); }

std::shared_ptr<Command> AddSubcommand(CLI::App& app, const std::string& name,
                                       const std::string& description) {
  return std::make_shared<Command>(app.add_subcommand(name, description));
}

CLI::App& AddGroup(CLI::App& app, const std::string& name, const std::string& description) {
  CLI::App* group = app.add_subcommand(name, description);
  group->require_subcommand(1);
  return *group;
}

}  // namespace clearhead::cli
