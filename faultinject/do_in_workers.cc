// Runs in worker processes.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "run_doer.h"
#include "worker.h"
#include "worker_pipe.h"

namespace kvfence {
namespace {

constexpr int kWaitMs = 50;

struct Worker {
  pid_t pid = -1;
  int socket = -1;
  std::string bytes;  // read, not yet a whole frame
  std::optional<PlannedRun> run{};
  std::vector<size_t> faults{};  // activated in this run, by kind
  ProgressFrame progress{};
};

std::string DeathOf(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "died of signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "ended its process with exit code " + std::to_string(WEXITSTATUS(status));
}

// What stands for a run that took its process down.
CampaignRun LostRun(const CampaignPlan& plan, const PlannedRun& planned,
                    const std::vector<size_t>& faults, const std::string& death) {
  CampaignRun run;
  run.number = planned.number;
  run.bad = true;
  if (faults.empty()) {
    run.red.push_back("run " + std::to_string(planned.number) + ", without a fault so far, " +
                      death);
    return run;
  }
  run.faults.push_back({.kind = faults.back(), .outcome = Outcome::kCrashed});
  IncidentStory& story = run.stories.emplace_back();
  story.kind = std::string(plan.kinds()[faults.back()]->name);
  story.outcome = Outcome::kCrashed;
  story.run = planned.number;
  story.timeline.push_back(
      {0, "crashed", "the run " + death + " after its fault no. " + std::to_string(faults.size())});
  return run;
}

class Workers final : public RunDoer {
 public:
  Workers(const DoerOptions& options, uint64_t jobs) : options_(options), workers_(jobs) {
    void* shared = mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    KVF_CHECK(shared != MAP_FAILED, "a page of memory can be shared");
    stop_ = new (shared) std::atomic<bool>(false);
  }
  ~Workers() override {
    stop_->store(true);
    for (Worker& worker : workers_) {
      if (worker.run) kill(worker.pid, SIGKILL);
      End(&worker);
    }
    munmap(stop_, sizeof(*stop_));
  }
  Status Start() {
    for (Worker& worker : workers_) {
      if (Status status = Start(&worker); !status.ok()) return status;
    }
    return Status();
  }

  bool CanTake() const override {
    for (const Worker& worker : workers_) {
      if (!worker.run) return true;
    }
    return false;
  }
  bool Busy() const override {
    for (const Worker& worker : workers_) {
      if (worker.run) return true;
    }
    return !done_.empty();
  }
  void Give(const PlannedRun& run, WantedStories stories) override {
    for (Worker& worker : workers_) {
      if (worker.run) continue;
      if (worker.pid < 0) {
        if (Status status = Start(&worker); !status.ok()) {
          CampaignRun refused;
          refused.number = run.number;
          refused.refused = status.message();
          done_.push_back({run, std::move(refused)});
          return;
        }
      }
      worker.run = run;
      worker.faults.clear();
      worker.progress = {};
      const RunOrder order{run.number, stories};
      if (send(worker.socket, &order, sizeof(order), MSG_NOSIGNAL) == sizeof(order)) return;
      // It died while it had nothing to do, so no run is to blame: another one takes over.
      worker.run.reset();
      End(&worker);
      Give(run, stories);
      return;
    }
  }
  std::optional<DoneRun> Await() override {
    if (done_.empty()) Listen();
    if (done_.empty()) return std::nullopt;
    DoneRun done = std::move(done_.front());
    done_.erase(done_.begin());
    return done;
  }
  void Stop() override { stop_->store(true); }

  bool Guarded(const std::function<void(const std::atomic<bool>*)>& work) override {
    const pid_t pid = fork();
    if (pid < 0) return false;
    if (pid == 0) {
      BecomeWorker({});
      work(stop_);
      _exit(0);
    }
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
      if (options_.hooks->stop != nullptr && options_.hooks->stop->load()) Stop();
      if (options_.tick) options_.tick();
      usleep(2000);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  uint64_t steps() const override {
    uint64_t sum = 0;
    for (const Worker& worker : workers_) sum += worker.progress.steps;
    return sum;
  }
  uint64_t served() const override {
    uint64_t sum = 0;
    for (const Worker& worker : workers_) sum += worker.progress.served;
    return sum;
  }

 private:
  Status Start(Worker* worker) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return NoWorker();
    const pid_t pid = fork();
    if (pid == 0) ServeRuns(options_, stop_, BecomeWorker(ends[1]));
    close(ends[1]);
    *worker = {};
    worker->pid = pid;
    worker->socket = ends[0];
    if (pid > 0) return Status();
    End(worker);
    return NoWorker();
  }
  static Status NoWorker() {
    return Status(StatusCode::kResourceExhausted,
                  std::string("cannot start a worker process: ") + std::strerror(errno));
  }
  // Closes its pipes and waits for its end. Returns its exit status.
  static int End(Worker* worker) {
    int status = 0;
    if (worker->socket >= 0) close(worker->socket);
    if (worker->pid > 0) {
      while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR) {
      }
    }
    *worker = {};
    return status;
  }

  void Listen() {
    std::vector<pollfd> polled;
    std::vector<Worker*> of;
    for (Worker& worker : workers_) {
      if (!worker.run) continue;
      polled.push_back({.fd = worker.socket, .events = POLLIN, .revents = 0});
      of.push_back(&worker);
    }
    if (polled.empty() || poll(polled.data(), polled.size(), kWaitMs) <= 0) return;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Hear(of[i]);
    }
  }

  void Hear(Worker* worker) {
    char buffer[1 << 16];
    const ssize_t n = read(worker->socket, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
      Bury(worker);
      return;
    }
    worker->bytes.append(buffer, static_cast<size_t>(n));
    size_t at = 0;
    FrameHead head;
    while (worker->bytes.size() - at >= sizeof(head)) {
      std::memcpy(&head, worker->bytes.data() + at, sizeof(head));
      if (worker->bytes.size() - at - sizeof(head) < head.size) break;
      Take(worker, head.kind, {worker->bytes.data() + at + sizeof(head), head.size});
      at += sizeof(head) + head.size;
    }
    worker->bytes.erase(0, at);
  }

  template <class T>
  static T As(std::string_view bytes) {
    T value;
    KVF_CHECK(bytes.size() == sizeof(T), "I-122 a frame is as long as what it holds");
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(T));
    return value;
  }

  void Take(Worker* worker, FrameKind kind, std::string_view bytes) {
    switch (kind) {
      case FrameKind::kResult: {
        std::optional<CampaignRun> run = RunFromLine(bytes);
        KVF_CHECK(run && run->number == worker->run->number, "I-122 a worker does what it's told");
        done_.push_back({*std::exchange(worker->run, std::nullopt), std::move(*run)});
        worker->progress = {};
        break;
      }
      case FrameKind::kFault:
        worker->faults.push_back(As<uint32_t>(bytes));
        if (options_.on_fault) options_.on_fault(*options_.plan->kinds()[worker->faults.back()]);
        break;
      case FrameKind::kProgress:
        worker->progress = As<ProgressFrame>(bytes);
        break;
      case FrameKind::kViolation:
        for (EventSink* sink : options_.hooks->sinks) sink->OnViolation(As<Violation>(bytes));
        break;
      case FrameKind::kStep:
        for (EventSink* sink : options_.hooks->sinks) sink->OnStep(As<StepStats>(bytes));
        break;
      case FrameKind::kAbort: {
        const auto abort = As<AbortFrame>(bytes);
        for (EventSink* sink : options_.hooks->sinks) sink->OnAbort(abort.req, abort.reason);
        break;
      }
    }
  }

  // The worker is dead, and so is its run.
  void Bury(Worker* worker) {
    const PlannedRun planned = *worker->run;
    const std::vector<size_t> faults = worker->faults;
    const std::string death = DeathOf(End(worker));
    done_.push_back({planned, LostRun(*options_.plan, planned, faults, death)});
  }

  DoerOptions options_;
  std::vector<Worker> workers_;
  std::vector<DoneRun> done_;
  std::atomic<bool>* stop_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<RunDoer>> DoInWorkers(const DoerOptions& options, uint64_t jobs) {
  auto workers = std::make_unique<Workers>(options, jobs);
  if (Status status = workers->Start(); !status.ok()) return status;
  return std::unique_ptr<RunDoer>(std::move(workers));
}

}  // namespace kvfence
