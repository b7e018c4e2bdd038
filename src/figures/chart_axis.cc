// SPDX-License-Identifier: MIT
#include "figures/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/error.h"

namespace clearhead {
namespace {

// Ticks are compared with the ends of the scale after rounding.
constexpr double kSlack = 1e-9;
// More unlabelled powers of ten between two labels would be a blur.
constexpr int kMaxMinorPowers = 10;

double PowerOfTen(int exponent) { return std::pow(10.0, exponent); }

// "-1.50e-05" as people write it: a real minus sign, no zeros that say nothing.
std::string Tidy(std::string number) {
  if (const std::size_t e = number.find('e'); e != std::string::npos) {
    std::string exponent = number.substr(e + 1);
    const bool negative = exponent.front() == '-';
    exponent.erase(0, std::min(exponent.find_first_not_of("+-0"), exponent.size()));
    number = number.substr(0, e) + "e" + (negative ? "−" : "") + exponent;
  }
  if (number.front() == '-') number = "−" + number.substr(1);
  return number;
}

// Labels that differ by `step` and reach up to `largest`: all with the same decimals and unit.
std::string LinearLabel(double value, double step, double largest) {
  if (std::abs(value) < step * kSlack) value = 0;
  double unit = 1;
  std::string_view suffix;
  if (largest >= 1e6 && largest < 1e9) {
    unit = 1e6;
    suffix = "M";
  } else if (largest >= 1e4 && largest < 1e6) {
    unit = 1e3;
    suffix = "k";
  }
  if (largest >= 1e9 || largest < 1e-3) {
    if (value == 0) return "0";
    const int digits =
        std::clamp(static_cast<int>(std::floor(std::log10(std::abs(value)) + kSlack) -
                                    std::floor(std::log10(step) + kSlack)),
                   0, 12);
    return Tidy(fmt::format("{:.{}e}", value, digits));
  }
  const int decimals =
      std::clamp(-static_cast<int>(std::floor(std::log10(step / unit) + kSlack)), 0, 15);
  if (value == 0) return decimals == 0 ? "0" : fmt::format("{:.{}f}", 0.0, decimals);
  return Tidy(fmt::format("{:.{}f}", value / unit, decimals)) + std::string(suffix);
}

// The largest of 1, 2, 5 x 10^k that still gives about `wanted` steps over the range.
double RoundStep(double range, int wanted) {
  const double rough = range / std::max(1, wanted);
  const double power = PowerOfTen(static_cast<int>(std::floor(std::log10(rough))));
  const double lead = rough / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

std::vector<Tick> LinearTicks(const AxisScale& scale, int wanted) {
  const double step = RoundStep(scale.high - scale.low, wanted);
  const double first = std::ceil(scale.low / step - kSlack);
  const double last = std::floor(scale.high / step + kSlack);
  const double largest = step * std::max(std::abs(first), std::abs(last));
  std::vector<Tick> ticks;
  for (double i = first; i <= last; ++i) {
    ticks.push_back({i * step, LinearLabel(i * step, step, largest)});
  }
  return ticks;
}

std::string LogLabel(double value) {
  if (value >= 0.9e-3 && value < 0.9e4) return fmt::format("{:.4g}", value);
  if (value >= 0.9e4 && value < 0.9e6) return fmt::format("{:.0f}k", value / 1e3);
  if (value >= 0.9e6 && value < 0.9e9) return fmt::format("{:.0f}M", value / 1e6);
  return Tidy(fmt::format("{:.0e}", value));
}

std::vector<Tick> LogTicks(const AxisScale& scale, int wanted) {
  const double low = std::log10(scale.low), high = std::log10(scale.high);
  const int first = static_cast<int>(std::ceil(low - kSlack));
  const int last = static_cast<int>(std::floor(high + kSlack));
  const int decades = last - first + 1;
  const bool powers_only = decades >= 3;
  const int stride =
      std::max(1, static_cast<int>(std::ceil(decades / (1.5 * std::max(1, wanted)))));
  std::vector<Tick> ticks;
  int labelled = 0;
  for (int exponent = first - 1; exponent <= last; ++exponent) {
    // The 2 to 9 between powers only while all powers are labelled.
    for (int lead = 1; lead <= (stride == 1 ? 9 : 1); ++lead) {
      const double value = lead * PowerOfTen(exponent);
      const double position = exponent + std::log10(lead);
      if (position < low - kSlack || position > high + kSlack) continue;
      const bool is_labelled = powers_only ? lead == 1 && (exponent - first) % stride == 0
                                           : lead == 1 || lead == 2 || lead == 5;
      if (!is_labelled && stride > kMaxMinorPowers) continue;
      ticks.push_back({value, is_labelled ? LogLabel(value) : ""});
      labelled += is_labelled;
    }
  }
  // Far fewer than three decades from here on, so an even step stays clear of zero.
  return powers_only || labelled >= 3 ? ticks : LinearTicks(scale, wanted);
}

}  // namespace

double AxisScale::Position(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
}

bool CanShow(double value, bool logarithmic) {
  return std::isfinite(value) && std::abs(value) < 1e300 && (!logarithmic || value > 1e-300);
}

void AxisRange::Include(double value) {
  if (!CanShow(value, logarithmic_)) return;
  if (empty()) {
    low_ = high_ = value;
  } else {
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
}

AxisScale AxisRange::Scale(double margin) const {
  if (empty()) return {logarithmic_ ? 1.0 : 0.0, logarithmic_ ? 10.0 : 1.0, logarithmic_};
  if (logarithmic_) {
    double room = margin * (std::log10(high_) - std::log10(low_));
    if (high_ / low_ < 1 + 1e-6) room = 0.15;
    const double factor = std::pow(10.0, room);
    return {low_ / factor, high_ * factor, true};
  }
  const double magnitude = std::max(std::abs(low_), std::abs(high_));
  double room = margin * (high_ - low_);
  // Closer together than the labels could tell: one value.
  if (high_ - low_ <= 1e-9 * magnitude) room = magnitude > 0 ? 0.1 * magnitude : 1;
  // A denormal's tenth may be nothing at all.
  if (!(low_ - room < high_ + room)) room = 1;
  return {low_ - room, high_ + room, false};
}

std::vector<Tick> MakeTicks(const AxisScale& scale, int wanted) {
  Check(scale.low < scale.high, "an axis needs a range");
  return scale.logarithmic ? LogTicks(scale, wanted) : LinearTicks(scale, wanted);
}

}  // namespace clearhead
