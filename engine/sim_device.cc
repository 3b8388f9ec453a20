#include "kvfence/sim_device.h"

#include <utility>

#include "kvfence/check.h"

namespace kvfence {

SimDevice::Ticket SimDevice::Enqueue(uint32_t stream, Op op, uint64_t not_before, Ticket after) {
  KVF_CHECK(stream < kStreamCount, "a stream that the device doesn't have");
  Stream& s = streams_[stream];
  s.queue.push_back({std::move(op), not_before, after});
  return ++s.enqueued;
}

void SimDevice::SetClock(uint64_t clock) {
  KVF_CHECK(clock >= clock_, "the device's clock never goes back");
  clock_ = clock;
}

void SimDevice::RunFront(Stream* stream) {
  const Op op = std::move(stream->queue.front().op);
  stream->queue.pop_front();
  op();
  ++stream->finished;
  ++executed_;
}

void SimDevice::Wait(uint32_t stream, Ticket ticket) {
  KVF_CHECK(ticket <= streams_[stream].enqueued, "waiting for work that was never queued");
  while (streams_[stream].finished < ticket) {
    std::array<Stream*, kStreamCount> ready{};
    uint32_t count = 0;
    for (Stream& s : streams_) {
      if (Ready(s)) ready[count++] = &s;
    }
    KVF_CHECK(count > 0, "I-42 the device waits for work that can't begin");
    RunFront(count == 1 ? ready[0] : ready[rng_.Below(count)]);
  }
}

uint64_t SimDevice::Discard() {
  uint64_t dropped = 0;
  for (Stream& s : streams_) {
    dropped += s.queue.size();
    s.finished += s.queue.size();
    s.queue.clear();
  }
  return dropped;
}

}  // namespace kvfence
