// SPDX-License-Identifier: MIT
// clearhead frontier RUN ...: edges against loss, over the validations of runs of sparsify.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/numbers.h"
#include "cli/trace_inputs.h"
#include "core/error.h"
#include "figures/canvas.h"
#include "figures/line_chart.h"
#include "train/frontier.h"

namespace clearhead::cli {
namespace {

// The paper keeps 0.3 to 0.4 % of the causal pairs at 1024 tokens (arXiv 2512.05865): a share says
// nothing without the length, open keys per query do.
constexpr double kPaperShare = 0.0035;
constexpr double kPaperContext = 1024.0;

struct Options {
  CommonOptions common;
  std::vector<std::string> runs;
  std::vector<double> tolerances = {0.0, 0.005, 0.01, 0.02, 0.05, 0.1};
  std::string out;
  double most = 0.1;
};

// One model's gates without training, told once for all runs that start from it.
bool SameStart(const FrontierRun& a, const FrontierRun& b) {
  return a.start.dense_loss == b.start.dense_loss && a.start.context == b.start.context;
}

std::string NameOf(const FrontierRun& run) { return ShortName(run.folder.string()); }

Json PointJson(const FrontierPoint& point, bool trained) {
  Json json = {{"loss_above_dense", point.above},
               {"edge_fraction", point.edge_fraction},
               {"edges_per_query", point.edges_per_query}};
  if (trained) json["tokens"] = point.tokens;
  return json;
}

Json PointsJson(const std::vector<FrontierPoint>& points, bool trained) {
  Json json = Json::array();
  for (const FrontierPoint& point : points) json.push_back(PointJson(point, trained));
  return json;
}

Json RunJson(const FrontierRun& run, const std::vector<double>& tolerances) {
  Json within = Json::array();
  for (const double tolerance : tolerances) {
    const FrontierPoint* best = FewestEdges(run.measured, tolerance);
    within.push_back({{"tolerance", tolerance}, {"best", best ? PointJson(*best, true) : Json()}});
  }
  return {{"run", run.folder.string()},
          {"dense_loss", run.start.dense_loss},
          {"context", run.start.context},
          {"measured", PointsJson(run.measured, true)},
          {"frontier", PointsJson(Frontier(run.measured), true)},
          {"untrained", PointsJson(PointsOf(run.start.untrained), false)},
          {"within", within}};
}

std::string Row(const std::string& name, const std::string& tokens,
                std::span<const FrontierPoint> points, const std::vector<double>& tolerances) {
  std::string row = fmt::format("{:<28} {:>8}", name, tokens);
  for (const double tolerance : tolerances) {
    const FrontierPoint* best = FewestEdges(points, tolerance);
    row +=
        best ? fmt::format(" {:>8.2f} {:>6.2f}", 100.0 * best->edge_fraction, best->edges_per_query)
             : fmt::format(" {:>8} {:>6}", "-", "-");
  }
  return row + "\n";
}

std::string Table(const std::vector<FrontierRun>& runs, const std::vector<double>& tolerances) {
  std::string text = fmt::format("{:<28} {:>8}", "fewest edges %, keys, within", "tokens");
  for (const double tolerance : tolerances) {
    text += fmt::format(" {:>15}", fmt::format("{:+.3g} nats", tolerance));
  }
  text += "\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == 0 || !SameStart(runs[i - 1], runs[i])) {
      text += Row(fmt::format("untrained, T = {}", runs[i].start.context), "0",
                  PointsOf(runs[i].start.untrained), tolerances);
    }
    const double tokens = runs[i].measured.empty() ? 0.0 : runs[i].measured.back().tokens;
    text +=
        Row(NameOf(runs[i]), fmt::format("{:.2f}M", tokens / 1e6), runs[i].measured, tolerances);
  }
  return text;
}

Series Line(const std::string& name, const std::vector<FrontierPoint>& points, double most) {
  Series series{.name = name};
  for (const FrontierPoint& point : points) {
    if (point.above > most) continue;
    series.x.push_back(point.above);
    series.y.push_back(point.edges_per_query);
  }
  return series;
}

void Draw(const Options& o, const std::vector<FrontierRun>& runs) {
  LineChart chart;
  chart.x_label = "loss above dense (nats)";
  chart.left_label = "open keys per query and head";
  chart.log_left = true;
  chart.reference_lines = {
      {kPaperShare * (kPaperContext + 1.0) / 2.0, "the paper's 0.35 % at 1024 tokens"}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == 0 || !SameStart(runs[i - 1], runs[i])) {
      chart.series.push_back(Line(fmt::format("untrained, T = {}", runs[i].start.context),
                                  PointsOf(runs[i].start.untrained), o.most));
    }
    Series line = Line(NameOf(runs[i]), Frontier(runs[i].measured), o.most);
    Series points = Line("", runs[i].measured, o.most);
    points.points_only = points.faint = true;  // in the colour of the line that follows
    chart.series.push_back(std::move(points));
    chart.series.push_back(std::move(line));
  }
  DrawLineChart(chart, o.out);
}

void Run(const Options& o) {
  if (!o.out.empty()) CheckFigurePath(o.out);
  std::vector<FrontierRun> runs;
  for (const std::string& folder : o.runs) {
    runs.push_back(ReadFrontierRun(folder));
    if (runs.back().measured.empty()) {
      Fail("'{}' has no validation yet; let the run go on", folder);
    }
  }
  if (!o.out.empty()) Draw(o, runs);
  if (!o.common.json) return Print(Table(runs, o.tolerances));
  Json list = Json::array();
  for (const FrontierRun& run : runs) list.push_back(RunJson(run, o.tolerances));
  PrintJson({{"schema", "clearhead.frontier.1"}, {"runs", list}});
}

}  // namespace

void AddFrontier(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      app, "frontier",
      "Edges against loss over the validations of runs of sparsify, beside gates on the untrained\n"
      "weights, from the files that the runs left",
      "clearhead frontier my-model-sparse my-model-sparse-long --out frontier.svg", options, Run);
  command->add_option("RUN", o.runs, "Folders that sparsify wrote, of one model side by side")
      ->required();
  command
      ->add_option("--tolerance", o.tolerances,
                   "Losses above dense to tell the fewest edges for (default: 0 0.005 0.01 0.02 "
                   "0.05 0.1)")
      ->check(NonNegativeNumber());
  command->add_option("--most", o.most, "Largest loss above dense in the picture (default: 0.1)")
      ->check(PositiveNumber());
  command->add_option("--out", o.out, "The picture: .svg, .pdf or .png");
}

}  // namespace clearhead::cli
