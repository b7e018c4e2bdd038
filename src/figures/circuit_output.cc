// SPDX-License-Identifier: MIT
#include "figures/circuit_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "figures/circuit_pictures.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

// As the tables print it, so that the sentences below them say the same.
double Tenths(double n) { return std::round(10.0 * n) / 10.0; }

constexpr std::size_t kHeadsShown = 10;

std::string FileName(std::string_view model) {
  std::string name;
  for (const char c : model) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    name += plain ? c : '_';
  }
  return name;
}

// "9 / 12 / 15 / 20"
std::string Sizes(const CircuitCurve& curve) {
  std::string sizes;
  for (const CircuitMark& mark : curve.marks) {
    sizes += fmt::format("{}{}", sizes.empty() ? "" : " / ", mark.size);
  }
  return sizes;
}

std::int64_t PrunedAt90(const CircuitReport& report) {
  const EdgeSet& edges = report.edges->at[1];
  return std::count(edges.begin(), edges.end(), true);
}

std::string Random(const CircuitMark& mark) {
  return fmt::format("{:.2f} ± {:.2f}", mark.random.faithfulness, mark.random.deviation);
}

std::string SettingsText(const CircuitReport& report, std::string_view between) {
  const CircuitSettings s = SettingsOf(report);
  const std::vector<std::pair<std::string_view, std::string>> lines = {
      {"ablation", s.ablation},         {"importance of heads", s.importance},
      {"granularity", s.granularity},   {"edges", s.edges},
      {"faithfulness", s.faithfulness}, {"random", s.random}};
  std::string text;
  for (const auto& [name, value] : lines) text += fmt::format("{}: {}{}", name, value, between);
  return text;
}

std::string HeadLines(const CircuitReport& report) {
  const ResidualGraph graph(report.config);
  const double total = report.score.clean_metric - report.score.corrupted_metric;
  std::vector<std::int64_t> heads = report.heads ? report.heads->heads : report.HeadsAt90();
  heads.resize(std::min(heads.size(), kHeadsShown));
  const auto share = [&](double value) { return fmt::format("{:>9.1f}%", 100.0 * value / total); };
  std::string text = fmt::format("\n{}\n{:<8}{:>10}{:>10}{:>13}  {}\n", report.model, "head",
                                 "noise", "denoise", "attribution", "role");
  for (const std::int64_t head : heads) {
    const auto at = static_cast<std::size_t>(head);
    const auto exact = [&](const std::optional<NodeEffects>& effects) {
      return effects ? share(effects->effect[at]) : fmt::format("{:>10}", "-");
    };
    text += fmt::format("{:<8}{}{}{:>13}  {}\n", graph.NodeLabel(head),
                        report.heads ? exact(report.heads->noise) : fmt::format("{:>10}", "-"),
                        report.heads ? exact(report.heads->denoise) : fmt::format("{:>10}", "-"),
                        share(report.attribution.nodes[at]), report.roles[at]);
  }
  return text;
}

// "copy, heads: sparse needs 4, dense 9 (2.2 times as many)."
std::string Verdict(const CircuitReport& a, const CircuitReport& b, std::string_view what,
                    double size_a, double size_b) {
  const CircuitReport& more = size_a >= size_b ? a : b;
  const CircuitReport& fewer = size_a >= size_b ? b : a;
  const double high = std::max(size_a, size_b), low = std::min(size_a, size_b);
  const auto number = [](double n) {
    return n == std::round(n) ? fmt::format("{:.0f}", n) : fmt::format("{:.1f}", n);
  };
  if (high == low) {
    return fmt::format("- {}, {}: {} and {} both need {}.\n", a.task, what, a.model, b.model,
                       number(high));
  }
  return fmt::format("- {}, {}: {} needs {}, {} {}{}.\n", a.task, what, fewer.model, number(low),
                     more.model, number(high),
                     low > 0 ? fmt::format(" ({:.1f} times as many)", high / low) : std::string());
}

}  // namespace

std::string CircuitFileName(std::size_t models, std::string_view model) {
  return models == 1 ? "circuit.json" : fmt::format("circuit-{}.json", FileName(model));
}

Json CircuitsJson(std::span<const CircuitReport> reports) {
  if (reports.size() == 1) return CircuitJson(reports[0]);
  Json json = {{"schema", "clearhead.circuits/1"}, {"task", reports[0].task}};
  json["models"] = Json::array();
  for (const CircuitReport& report : reports) json["models"].push_back(CircuitJson(report));
  return json;
}

void WriteCircuitFiles(std::span<const CircuitReport> reports, const fs::path& folder) {
  MakeDirectory(folder);
  WriteJsonFile(folder / "circuit.json", CircuitsJson(reports));
  for (const CircuitReport& report : reports) {
    const std::string suffix =
        reports.size() == 1 ? std::string() : fmt::format("-{}", FileName(report.model));
    if (reports.size() > 1) {
      WriteJsonFile(folder / CircuitFileName(reports.size(), report.model), CircuitJson(report));
    }
    WriteJsonFile(folder / ("graph" + suffix + ".json"), GraphJson(report));
    if (report.heads) DrawCircuitDiagram(HeadDiagram(report), folder / ("heads" + suffix + ".svg"));
    if (report.edges) DrawCircuitDiagram(EdgeDiagram(report), folder / ("edges" + suffix + ".svg"));
  }
  if (reports[0].heads) {
    DrawCircuitCurve(CurveFigure(reports, /*edges=*/false), folder / "curve-heads.svg");
  }
  if (reports[0].edges) {
    DrawCircuitCurve(CurveFigure(reports, /*edges=*/true), folder / "curve-edges.svg");
  }
  WriteFile(folder / "table.md", CircuitMarkdown(reports, ""));
}

std::string CircuitText(std::span<const CircuitReport> reports) {
  const CircuitReport& first = reports[0];
  std::string text =
      fmt::format("task {}: {}, {} prompts ({} skipped)\n{}\n", first.task, ToText(first.metric),
                  first.items, first.skipped, SettingsText(first, "\n"));
  text +=
      fmt::format("{:<16}{:>8}{:>10}{:>10}  {:<24}{:>7}  {}\n", "model", "clean", "corrupted",
                  "accuracy", "at 80 / 90 / 95 / 99 %", "of", "random sets of the size at 90 %");
  for (const CircuitReport& report : reports) {
    const auto line = [&](std::string_view sizes, const CircuitCurve& curve) {
      text += fmt::format("{:<16}{:>8.3f}{:>10.3f}{:>9.1f}%  {:<24}{:>7}  {}\n", report.model,
                          report.score.clean_metric, report.score.corrupted_metric,
                          100.0 * report.score.accuracy, sizes, curve.total, Random(curve.At(0.9)));
    };
    if (report.heads) line(Sizes(report.heads->curve) + " heads", report.heads->curve);
    if (report.edges) line(Sizes(report.edges->curve) + " edges", report.edges->curve);
    if (report.edges) {
      text += fmt::format("{:<16}  edges on a path at 90 %: {}\n", "", PrunedAt90(report));
    }
    if (report.heads) {
      const AttentionEdges& a = report.heads->attention;
      text += fmt::format(
          "{:<16}  attention edges per prompt in the heads at 90 %: {:.1f} causal, {:.1f} open, "
          "{:.1f} enough for all but 1 %\n",
          "", a.all, a.open, Tenths(a.kept));
    }
  }
  for (const CircuitReport& report : reports) text += HeadLines(report);
  return text;
}

std::string CircuitMarkdown(std::span<const CircuitReport> reports, const std::string& command) {
  std::string text = "## Circuits\n\n";
  if (!command.empty()) text += fmt::format("    {}\n\n", command);
  text += SettingsText(reports[0], ".\n");
  text +=
      "\n| task | metric | prompts | model | clean | corrupted | heads at 80 / 90 / 95 / 99 % | "
      "random heads at 90 % | edges at 80 / 90 / 95 / 99 % | on a path at 90 % | random edges | "
      "attention edges: causal / open / kept |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const CircuitReport& r : reports) {
    text += fmt::format("| {} | {} | {} | {} | {:.3f} | {:.3f} | ", r.task, ToText(r.metric),
                        r.items, r.model, r.score.clean_metric, r.score.corrupted_metric);
    text += r.heads ? fmt::format("{} of {} | {} | ", Sizes(r.heads->curve), r.heads->curve.total,
                                  Random(r.heads->curve.At(0.9)))
                    : "- | - | ";
    text += r.edges
                ? fmt::format("{} of {} | {} | {} | ", Sizes(r.edges->curve), r.edges->curve.total,
                              PrunedAt90(r), Random(r.edges->curve.At(0.9)))
                : "- | - | - | ";
    text += r.heads ? fmt::format("{:.1f} / {:.1f} / {:.1f} |\n", r.heads->attention.all,
                                  r.heads->attention.open, Tenths(r.heads->attention.kept))
                    : "- |\n";
  }
  std::string verdicts;
  for (std::size_t i = 0; i + 1 < reports.size(); ++i) {
    const CircuitReport &a = reports[i], &b = reports[i + 1];
    if (a.task != b.task) continue;
    const auto size = [](const CircuitCurve& curve) {
      return static_cast<double>(curve.At(0.9).size);
    };
    if (a.heads) {
      verdicts += Verdict(a, b, "heads at 90 %", size(a.heads->curve), size(b.heads->curve));
    }
    if (a.edges) {
      verdicts += Verdict(a, b, "edges on a path at 90 %", static_cast<double>(PrunedAt90(a)),
                          static_cast<double>(PrunedAt90(b)));
    }
    if (a.heads) {
      verdicts += Verdict(a, b, "attention edges kept per prompt", Tenths(a.heads->attention.kept),
                          Tenths(b.heads->attention.kept));
    }
  }
  if (!verdicts.empty()) text += "\n" + verdicts;
  return text;
}

void ReplaceSection(const fs::path& file, const std::string& text) {
  constexpr std::string_view kBegin = "<!-- clearhead circuit: begin -->\n";
  constexpr std::string_view kEnd = "<!-- clearhead circuit: end -->\n";
  std::string document = fs::exists(file) ? ReadFile(file) : std::string();
  const std::string section = fmt::format("{}{}{}", kBegin, text, kEnd);
  const std::size_t begin = document.find(kBegin), end = document.find(kEnd);
  if ((begin == std::string::npos) != (end == std::string::npos) || end < begin) {
    Fail("{}: one of the marks '{}' and '{}' is missing; delete the other", file.string(),
         kBegin.substr(0, kBegin.size() - 1), kEnd.substr(0, kEnd.size() - 1));
  }
  if (begin == std::string::npos) {
    if (!document.empty()) document += document.ends_with('\n') ? "\n" : "\n\n";
    document += section;
  } else {
    document.replace(begin, end + kEnd.size() - begin, section);
  }
  WriteFile(file, document);
}

}  // namespace clearhead
