// SPDX-License-Identifier: MIT
#include "core/host.h"

namespace clearhead {
namespace {

thread_local const Host* current = nullptr;
thread_local int stopping_themselves = 0;

}  // namespace

HostScope::HostScope(const Host* host) : before_(current) { current = host; }
HostScope::~HostScope() { current = before_; }

const Host* CurrentHost() { return current; }

StopsItself::StopsItself() { ++stopping_themselves; }
StopsItself::~StopsItself() { --stopping_themselves; }

void StopIfAsked() {
  if (current == nullptr || !current->should_stop || stopping_themselves > 0) return;
  if (current->should_stop()) throw Interrupted("interrupted");
}

}  // namespace clearhead
