// Recurrent-memory models beside full attention, and the orders in which their segments may go through the layers.
//
//   diagonal_orders orders MODEL   seconds of a text in every order, whose bits must be equal: exit code 1 where they are not
//   diagonal_orders full BASE      seconds of a prompt with full attention, from chunks timed at five depths
//   diagonal_orders decode MODEL   seconds of a generated token behind a long text: MODEL's tail, or a whole cache of a model without segments
//   diagonal_orders rates MODEL    rates of the matrix operation and of attention against the number of layers in one call
//
// tools/make_synthetic_model.py writes models (armt-160m, armt-llama-3.2-1b) and their base models. S excludes memory tokens. Each measurement
// is a line of JSON, with seconds as they are; plot_orders.py makes figures of them. --threads is all threads of the program.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "base/float_environment.h"
#include "benchmarks/diagonal/loaded_model.h"

int main(int argc, char** argv) {
  using namespace tidemill::diagonal;
  const tidemill::ScopedDefaultFloatEnvironment float_environment;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  CLI::App app("Orders of recurrent-memory models, and full attention beside them");
  Options options;
  options.threads = tidemill::DefaultThreadCount();
  int exit_code = 0;
  const auto add = [&](const char* name, const char* about, int (*run)(const Options&)) {
    CLI::App* const mode = app.add_subcommand(name, about);
    mode->add_option("model", options.model, "a model's folder or file")->required();
    mode->add_option("--threads", options.threads)->check(CLI::Range(1, 256));
    mode->add_option("--rounds", options.rounds, "measurements of each, in random order")->check(CLI::PositiveNumber);
    mode->final_callback([&exit_code, &options, run] { exit_code = run(options); });
    return mode;
  };
  CLI::App* const orders = add("orders", "a text's segments in every order", RunOrders);
  orders->add_option("--segments", options.segments, "of the text")->check(CLI::PositiveNumber);
  orders->add_option("--in-flight", options.in_flight, "segments of layer-major; as many as layers unless given");
  orders
      ->add_option("--want", options.want,
                   "what every token gives: nothing, as in a prompt; the last hidden state; logits")
      ->check(CLI::IsMember({"nothing", "hidden", "logits"}));
  CLI::App* const full = add("full", "prefill of a model without segments", RunFull);
  full->add_option("--lengths", options.lengths, "tokens of a prompt")->delimiter(',')->check(CLI::PositiveNumber);
  full->add_option("--chunk", options.chunk)->check(CLI::PositiveNumber);
  full->add_flag("--whole", options.whole, "run all chunks, to compare with");
  CLI::App* const decode = add("decode", "a generated token behind a text", RunDecode);
  decode->add_option("--tokens", options.tokens, "of the text")->check(CLI::PositiveNumber);
  decode->add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  decode->add_option("--chunk", options.chunk)->check(CLI::PositiveNumber);
  CLI::App* const rates = add("rates", "rates against the group's size", RunRates);
  rates->add_option("--rows", options.rows, "of a layer's task; a segment with its memory rows unless given");
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
