// The oracle for decode attention: doubles, a contiguous cache, two passes, nothing clever.
//
// Shares no code with the kernels: it has its own reading of an e4m3 code and knows nothing of
// pages. A caller lists a row's readable tokens in order, with the codes and scales of each.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kvfence::model {

// The value of an e4m3 code, from the format's definition.
inline double E4m3Value(unsigned code) {
  const int sign = (code & 0x80) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(code >> 3 & 0xF);
  const int mantissa = static_cast<int>(code & 7);
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return std::copysign(std::ldexp(mantissa, -9), sign);
  return sign * std::ldexp(8 + mantissa, exponent - 7 - 3);
}

// The code nearest to x by searching all of them; of two equally near, the one with an even
// mantissa; beyond 448 the largest. x is not a NaN.
inline unsigned E4m3Nearest(double x) {
  unsigned best = 0;
  double best_error = std::numeric_limits<double>::infinity();
  for (unsigned code = 0; code < 0x7F; ++code) {
    const double error = std::fabs(std::fabs(x) - E4m3Value(code));
    if (error < best_error || (error == best_error && code % 2 == 0)) {
      best = code;
      best_error = error;
    }
  }
  if (std::fabs(x) > 448) best = 0x7E;
  return best | (std::signbit(x) ? 0x80u : 0u);
}

struct Token {
  std::vector<uint8_t> k, v;  // [kv_heads * head_dim] codes
  double k_scale = 1, v_scale = 1;
};

struct AttentionResult {
  std::vector<double> o;  // [qo_heads * head_dim]
  std::vector<double> lse;
};

// q: [qo_heads * head_dim].
inline AttentionResult Attention(const std::vector<float>& q, const std::vector<Token>& tokens,
                                 size_t qo_heads, size_t kv_heads, size_t head_dim,
                                 double sm_scale) {
  AttentionResult result;
  result.o.assign(qo_heads * head_dim, 0.0);
  result.lse.assign(qo_heads, -std::numeric_limits<double>::infinity());
  if (tokens.empty()) return result;
  for (size_t h = 0; h < qo_heads; ++h) {
    const size_t kv = h / (qo_heads / kv_heads) * head_dim;
    std::vector<double> score;
    for (const Token& token : tokens) {
      double dot = 0;
      for (size_t d = 0; d < head_dim; ++d) {
        dot += double{q[h * head_dim + d]} * E4m3Value(token.k[kv + d]);
      }
      score.push_back(dot * token.k_scale * sm_scale);
    }
    double max = score[0];
    for (double s : score) max = std::fmax(max, s);
    double sum = 0;
    for (double s : score) sum += std::exp(s - max);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const double weight = std::exp(score[t] - max) / sum * tokens[t].v_scale;
      for (size_t d = 0; d < head_dim; ++d) {
        result.o[h * head_dim + d] += weight * E4m3Value(tokens[t].v[kv + d]);
      }
    }
    result.lse[h] = max + std::log(sum);
  }
  return result;
}

}  // namespace kvfence::model
