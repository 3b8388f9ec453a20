#include "worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include "worker_pipe.h"

namespace kvfence {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTellEvery = std::chrono::milliseconds(50);
constexpr size_t kBuffer = size_t{1} << 15;

// Collects frames, and sends them when there are many or it's time.
class Teller final : public EventSink {
 public:
  explicit Teller(int fd) : fd_(fd) {}

  template <class T>
  void Tell(FrameKind kind, const T& value) {
    TellBytes(kind, BytesOf(value));
  }
  void TellBytes(FrameKind kind, std::string_view bytes) {
    const FrameHead head{kind, static_cast<uint32_t>(bytes.size())};
    buffer_ += BytesOf(head);
    buffer_ += bytes;
    if (buffer_.size() >= kBuffer) Send();
  }
  void Send() {
    // Without a parent there's nothing left to do.
    if (!WriteWhole(fd_, buffer_)) _exit(0);
    buffer_.clear();
    sent_ = Clock::now();
  }
  bool Due() const { return Clock::now() - sent_ >= kTellEvery; }

  void OnViolation(const Violation& violation) override { Tell(FrameKind::kViolation, violation); }
  void OnStep(const StepStats& stats) override { Tell(FrameKind::kStep, stats); }
  void OnAbort(RequestId req, Reason reason) override {
    Tell(FrameKind::kAbort, AbortFrame{req, reason});
  }

 private:
  int fd_;
  std::string buffer_;
  Clock::time_point sent_ = Clock::now();
};

}  // namespace

bool WriteWhole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool ReadWhole(int fd, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

int BecomeWorker(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  // Next to the standard three, so that all others can be closed at once: a lock or a port that the
  // campaign holds must not outlive it here.
  int kept = STDERR_FILENO;
  if (socket >= 0 && socket != kept + 1) socket = dup2(socket, kept + 1);
  if (socket >= 0) kept = socket;
  close_range(static_cast<unsigned>(kept + 1), ~0u, 0);
  return socket;
}

void ServeRuns(const DoerOptions& options, const std::atomic<bool>* stop, int socket) {
  Teller teller(socket);
  const auto& in_run = options.hooks->in_run;
  RunOrder order;
  while (ReadWhole(socket, &order, sizeof(order))) {
    const auto planned = options.plan->At(order.number);
    if (!planned) _exit(2);
    if (in_run) in_run(order.number, false);
    RunListener listener;
    if (!options.hooks->sinks.empty()) listener.sinks = {&teller};
    listener.clean_seconds = options.clean_seconds;
    listener.twin = !options.plan->kinds().empty();
    listener.on_fault = [&](size_t kind) {
      teller.Tell(FrameKind::kFault, static_cast<uint32_t>(kind));
      teller.Send();  // now: should the run die of it, the campaign knows
      if (in_run) in_run(order.number, true);
    };
    listener.go_on = [&](uint64_t steps, uint64_t served) {
      if (steps % 64 == 0 && teller.Due()) {
        teller.Tell(FrameKind::kProgress, ProgressFrame{steps, planned->faulty() ? 0 : served});
        teller.Send();
      }
      return !stop->load(std::memory_order_relaxed);
    };
    teller.TellBytes(FrameKind::kResult,
                     ToLine(DoRun(*options.plan, *planned, order.stories, listener)));
    teller.Send();
  }
  _exit(0);
}

}  // namespace kvfence
