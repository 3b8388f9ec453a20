// The exposer as Prometheus meets it: a plain socket, one GET, and what comes back.
#include "kvfence/metrics_exposer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "tests/metrics/exposition.h"
#include "tests/metrics/fixture.h"
#include "tests/metrics/process.h"

namespace kvfence::testing {
namespace {

sockaddr_in At(const char* address, int port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(inet_pton(AF_INET, address, &at.sin_addr), 1);
  return at;
}

// A TCP socket, closed at the end of the scope.
class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) { EXPECT_GE(fd_, 0); }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool Connect(const char* address, int port) {
    const sockaddr_in at = At(address, port);
    return connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }
  // Listens on any free port of 127.0.0.1 and returns it.
  int Listen() {
    sockaddr_in at = At("127.0.0.1", 0);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    return ntohs(at.sin_port);
  }
  std::string Ask(const std::string& request) {
    EXPECT_EQ(send(fd_, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = recv(fd_, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
    return answer;
  }

 private:
  int fd_;
};

// Head and body of the answer to GET `path`.
std::pair<std::string, std::string> Get(int port, const std::string& path) {
  Socket socket;
  EXPECT_TRUE(socket.Connect("127.0.0.1", port));
  const std::string answer =
      socket.Ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const size_t end = answer.find("\r\n\r\n");
  if (end == std::string::npos) return {answer, ""};
  return {answer.substr(0, end), answer.substr(end + 4)};
}

TEST(MetricsExposer, AnswersAScrapeWithTheText) {
  const auto metrics = Make(HarnessOptions());
  const auto exposer = MetricsExposer::Start(*metrics, {}).value();
  ASSERT_GT(exposer->port(), 0);
  metrics->OnViolation(Found(Reason::kDoubleFree));
  const auto [head, body] = Get(exposer->port(), "/metrics");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 ")) << head;
  EXPECT_NE(head.find("text/plain"), std::string::npos) << head;
  EXPECT_NE(body.find(metrics->RenderText()), std::string::npos) << body;
  EXPECT_NE(body.find("reason=\"double_free\"} 1\n"), std::string::npos);
  if (OnPath("promtool")) {
    const ProcessResult result = RunProcess({"promtool", "check", "metrics"}, body);
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST(MetricsExposer, EachScrapeIsFresh) {
  const auto metrics = Make(BareOptions());
  const auto exposer = MetricsExposer::Start(*metrics, {}).value();
  for (int i = 1; i <= 3; ++i) {
    metrics->OnStep(Stats(2, 10));
    const auto series = ParseExposition(Get(exposer->port(), "/metrics").second);
    EXPECT_EQ(series.at("kvfence_requests_checked_total{backend=\"cpu\"}"), 2 * i);
  }
}

TEST(MetricsExposer, OtherPathsAreNotFound) {
  const auto metrics = Make(BareOptions());
  const auto exposer = MetricsExposer::Start(*metrics, {}).value();
  EXPECT_TRUE(Get(exposer->port(), "/etc/passwd").first.starts_with("HTTP/1.1 404 "));
}

// All of 127/8 is this machine, so 127.0.0.2 stands for any other address of it.
TEST(MetricsExposer, ListensOnLoopbackAloneUnlessToldElse) {
  const auto metrics = Make(BareOptions());
  const auto closed = MetricsExposer::Start(*metrics, {}).value();
  EXPECT_TRUE(Socket().Connect("127.0.0.1", closed->port()));
  EXPECT_FALSE(Socket().Connect("127.0.0.2", closed->port()));
  const auto open = MetricsExposer::Start(*metrics, {.port = 0, .address = "0.0.0.0"}).value();
  EXPECT_TRUE(Socket().Connect("127.0.0.2", open->port()));
}

TEST(MetricsExposer, ATakenPortIsARefusalThatNamesIt) {
  const auto metrics = Make(BareOptions());
  Socket other;
  const int taken = other.Listen();
  const auto refused = MetricsExposer::Start(
      *metrics, {.port = static_cast<uint16_t>(taken), .address = "127.0.0.1"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("127.0.0.1:" + std::to_string(taken)),
            std::string::npos)
      << refused.status().message();
}

TEST(MetricsExposer, RefusesWhatIsNoNumericAddress) {
  const auto metrics = Make(BareOptions());
  for (const std::string address :
       {"", "localhost", "127.0.0.1,0.0.0.0", "127.0.0.1:80", "127.0.0.256", "1", "::g"}) {
    const auto refused = MetricsExposer::Start(*metrics, {.port = 0, .address = address});
    ASSERT_FALSE(refused.ok()) << address;
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << address;
  }
}

TEST(MetricsExposer, OutlivesTheMetricsAndGivesThePortBack) {
  auto metrics = Make(BareOptions());
  metrics->OnStep(Stats(5, 5));
  auto exposer = MetricsExposer::Start(*metrics, {}).value();
  metrics.reset();
  const int port = exposer->port();
  EXPECT_NE(Get(port, "/metrics").second.find("kvfence_requests_checked_total{backend=\"cpu\"} 5"),
            std::string::npos);
  exposer.reset();
  EXPECT_FALSE(Socket().Connect("127.0.0.1", port));
}

}  // namespace
}  // namespace kvfence::testing
