// SPDX-License-Identifier: MIT
// Between the public headers and the library: what is thrown inside becomes what callers can catch,
// and a caller's Control becomes the host of the work.
#pragma once

#include <clearhead/control.h>
#include <clearhead/error.h>

#include "core/host.h"

namespace clearhead::api {

template <typename Work>
auto AtBoundary(const Work& work) {
  try {
    return work();
  } catch (const clearhead::Interrupted& error) {
    throw Interrupted(error.what());
  } catch (const clearhead::UsageError& error) {
    throw UsageError(error.what());
  } catch (const clearhead::Error& error) {
    throw Error(error.what());
  } catch (const Error&) {  // of a call inside a callback
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const std::logic_error& error) {
    throw InternalError(error.what());
  }
}

// All of it set, so that no signal and no stream of the process is used.
inline Host HostOf(const Control& control) {
  Host host{.print = [](std::string_view) {}, .should_stop = control.should_stop};
  if (!host.should_stop) host.should_stop = [] { return false; };
  host.progress = [&control](const ProgressReport& report) {
    if (!control.progress) return;
    control.progress({.label = report.label,
                      .unit = report.unit,
                      .extra = report.extra,
                      .done = report.done,
                      .total = report.total,
                      .finished = report.finished});
  };
  return host;
}

}  // namespace clearhead::api
