#include "interrupt.h"

#include <csignal>
#include <cstdlib>

namespace kvfence::tools {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void OnInterrupt(int) {
  if (g_stop.exchange(true)) std::_Exit(130);
}

}  // namespace

const std::atomic<bool>& StopOnInterrupt() {
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  return g_stop;
}

}  // namespace kvfence::tools
