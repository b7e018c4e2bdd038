// SPDX-License-Identifier: MIT
// Manual pages in man(7)'s language.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "manuals/described_command.h"

namespace clearhead::manuals {
namespace {

// As it stands on the page: no character of the text is taken for a request.
std::string Plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '~') {
      out += "\\(ti";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else {
      out += c;
    }
  }
  if (out.starts_with('.')) out.insert(0, "\\&");
  return out;
}

std::string Lines(std::string_view text) {
  std::string out;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) out += Plain(line) + "\n";
  return out;
}

std::string FirstLine(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  while (line.ends_with('.') || line.ends_with(':')) line.pop_back();
  return line;
}

std::string PageName(const DescribedCommand& command) {
  return command.words.empty() ? "clearhead"
                               : fmt::format("clearhead-{}", fmt::join(command.words, "-"));
}

std::string Synopsis(const DescribedCommand& command) {
  std::string line = ".B clearhead";
  for (const std::string& word : command.words) line += " " + Plain(word);
  line += "\n";
  if (!command.commands.empty()) return line + ".I COMMAND\n.RI [ options ]\n";
  for (const DescribedOption& option : command.options) {
    if (!option.names.empty()) continue;
    const std::string dots = option.repeats ? "..." : "";
    line += option.required ? fmt::format(".I {}{}\n", Plain(option.argument), dots)
                            : fmt::format(".RI [ {}{} ]\n", Plain(option.argument), dots);
  }
  return line + ".RI [ options ]\n";
}

std::string Option(const DescribedOption& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", Plain(name));
  }
  const std::string argument = option.choices.empty()
                                   ? Plain(option.argument)
                                   : Plain(fmt::format("{}", fmt::join(option.choices, "|")));
  if (!argument.empty()) names += fmt::format("{}\\fI{}\\fR", names.empty() ? "" : " ", argument);
  return fmt::format(".TP\n{}\n{}{}", names, Lines(option.help),
                     option.required ? "(required)\n" : "");
}

void AddPages(const DescribedCommand& command, const DescribedCommand& program,
              const std::string& version, std::vector<WrittenPage>* pages) {
  const std::string name = PageName(command);
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string text = fmt::format(
      ".\\\" Made from the words of --help.\n"
      ".TH {} 1 \"\" \"clearhead {}\" \"clearhead\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}"
      ".SH DESCRIPTION\n{}",
      Plain(upper), version, Plain(name),
      Plain(command.words.empty() ? "sparse attention, and what every head does"
                                  : FirstLine(command.description)),
      Synopsis(command), Lines(command.description));
  if (!command.commands.empty()) {
    text += ".SH COMMANDS\n";
    for (const DescribedCommand& inner : command.commands) {
      text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}", Plain(PageName(inner)),
                          Lines(FirstLine(inner.description)));
    }
  }
  text += ".SH OPTIONS\n";
  for (const DescribedOption& option : command.options) text += Option(option);
  if (!command.footer.empty()) {
    text += fmt::format(".SH EXAMPLES\n.nf\n{}.fi\n", Lines(command.footer));
  }
  text +=
      ".SH EXIT STATUS\n0 done; 1 something was not as needed, and a line on standard error says "
      "what; 2 the command line\nwas not understood; 130 interrupted after saving.\n";
  text += ".SH SEE ALSO\n";
  if (command.words.empty()) {
    text += "/usr/share/doc/clearhead\n";
  } else {
    text += fmt::format(".BR {} (1)\n", Plain(PageName(program)));
  }
  pages->push_back({name + ".1", text});
  for (const DescribedCommand& inner : command.commands) AddPages(inner, program, version, pages);
}

}  // namespace

std::vector<WrittenPage> ManualPages(const DescribedCommand& program, const std::string& version) {
  std::vector<WrittenPage> pages;
  AddPages(program, program, version, &pages);
  return pages;
}

}  // namespace clearhead::manuals
