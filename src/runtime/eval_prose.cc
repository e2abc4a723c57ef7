#include "runtime/eval_prose.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"

namespace tidemill {
namespace {

using WordText = std::string_view;

constexpr WordText kAdjectives[] = {"old",    "quiet", "heavy", "narrow", "pale",  "broken", "distant",
                                    "wooden", "green", "blue",  "warm",   "small", "tall",   "empty",
                                    "bright", "slow",  "grey",  "round",  "dusty", "cold"};
constexpr WordText kThings[] = {"lantern", "basket", "bridge", "ladder", "window", "barrel", "garden",
                                "wagon",   "kettle", "rope",   "table",  "mirror", "hammer", "blanket",
                                "clock",   "boat",   "fence",  "stove",  "bell",   "cup"};
constexpr WordText kPlaces[] = {"north gate", "river bank", "old mill",   "market hall", "stone barn", "south tower",
                                "harbour",    "orchard",    "upper road", "deep cellar", "town well",  "west field",
                                "boat house", "hill path",  "long quay",  "back stairs"};
constexpr WordText kPeople[] = {"the miller",    "a fisherman",   "the baker",   "two travellers",
                                "a carpenter",   "the ferryman",  "the teacher", "a shepherd",
                                "the neighbour", "some children", "the doctor",  "an old sailor"};
constexpr WordText kTimes[] = {"in the morning",   "after the rain",  "before dawn",      "late in the evening",
                               "at noon",          "in early spring", "on market day",    "in the winter",
                               "during the storm", "on a Sunday",     "when it was dark", "last autumn"};
constexpr WordText kActions[] = {"carried", "found",   "repaired", "painted", "moved", "forgot",
                                 "sold",    "cleaned", "borrowed", "dropped", "hid",   "measured"};
constexpr WordText kEndings[] = {"and nobody said a word",
                                 "while the wind turned to the east",
                                 "and went home again",
                                 "as they had done for years",
                                 "and it took most of the day",
                                 "because the road was closed",
                                 "and a dog followed",
                                 "without much noise",
                                 "while smoke rose behind the hill",
                                 "and the water was still high"};

constexpr WordText kFirstNames[] = {"Mara",  "Tobin",  "Elske", "Davor",  "Ilsa",   "Corin", "Petra", "Anselm",
                                    "Junia", "Rurik",  "Sanne", "Matteo", "Orla",   "Fenno", "Lidia", "Casper",
                                    "Noor",  "Emeric", "Vesna", "Hollis", "Tamsin", "Aldo",  "Greta", "Joris"};
constexpr WordText kLastNames[] = {"Velden",    "Ostrow",    "Marchetti", "Lindqvist", "Harrow",   "Sobel",
                                   "Castellan", "Brandt",    "Ferreira",  "Okafor",    "Tannen",   "Wexford",
                                   "Dragan",    "Pelletier", "Nyberg",    "Aldana",    "Kroll",    "Ravenna",
                                   "Stroud",    "Mazur",     "Eklund",    "Varga",     "Holloway", "Quist"};
constexpr WordText kTowns[] = {"Lindholm",   "Ostrava",  "Carrow",  "Belmonte",  "Tarn",   "Westerhaven",
                               "Kirkwall",   "Novara",   "Ashford", "Ribe",      "Salvia", "Durness",
                               "Elm Hollow", "Pinewood", "Graz",    "Hartlepool"};
constexpr WordText kTrades[] = {"glass blower", "bridge engineer", "beekeeper",   "court reporter",
                                "violin maker", "sea captain",     "bookbinder",  "wheat farmer",
                                "watchmaker",   "school nurse",    "stone mason", "map printer"};
constexpr WordText kInstruments[] = {"cello", "accordion", "trumpet",   "harp",  "mandolin",
                                     "oboe",  "piano",     "bass drum", "flute", "bagpipe"};
constexpr WordText kAnimals[] = {"grey parrot", "lame goat", "white ferret", "old tortoise", "pair of doves",
                                 "black mare",  "tame fox",  "blind cat",    "red setter",   "young owl"};

constexpr FactKind kFacts[] = {
    {"% was born in #.", "Was % born in # or in @?", " % was born in #, and not in @.", kTowns},
    {"% works as a #.", "Does % work as a # or as a @?", " % works as a #, and not as a @.", kTrades},
    {"In the evening % plays the #.", "Does % play the # or the @?", " In the evening % plays the #, and not the @.",
     kInstruments},
    {"At home % keeps a #.", "Does % keep a # or a @?", " At home % keeps a #, and not a @.", kAnimals},
};

constexpr WordText kVerbs[] = {"fold",  "shift", "blend", "trim",  "weigh", "scan",
                               "clamp", "mix",   "rank",  "split", "join",  "scale"};
constexpr WordText kNouns[] = {"river",  "stone",  "cloud",  "ember", "field",  "signal",
                               "pebble", "anchor", "marble", "cable", "meadow", "prism"};
static_assert(std::size(kVerbs) * std::size(kNouns) >= kMaxFunctions);
static_assert(std::size(kFirstNames) * std::size(kLastNames) == kMaxPeopleNames);

std::string Joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string Number(EvalRandom& random, size_t low, size_t count) { return std::to_string(low + random.Below(count)); }

}  // namespace

std::vector<size_t> EvalRandom::Sample(size_t n, size_t count) {
  std::vector<size_t> all(n);
  std::iota(all.begin(), all.end(), size_t{0});
  Shuffle(all);
  all.resize(std::min(n, count));
  return all;
}

std::string ProseSentence(EvalRandom& random) {
  std::string text;
  switch (random.Below(3)) {
    case 0:
      text = Joined({random.Pick(kTimes), ", ", random.Pick(kPeople), " ", random.Pick(kActions), " the ",
                     ThingName(random), " near the ", random.Pick(kPlaces), ", ", random.Pick(kEndings), ". "});
      break;
    case 1:
      text = Joined({random.Pick(kPeople), " ", random.Pick(kActions), " a ", ThingName(random), " ",
                     random.Pick(kTimes), ", ", random.Pick(kEndings), ". "});
      break;
    default:
      text =
          Joined({"the ", ThingName(random), " by the ", random.Pick(kPlaces), " had been ", random.Pick(kAdjectives),
                  " since ", random.Pick(kPeople), " ", random.Pick(kActions), " the ", random.Pick(kThings), ". "});
  }
  text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string EightDigits(EvalRandom& random) { return std::to_string(10000000 + random.Below(90000000)); }
std::string PlaceName(EvalRandom& random) { return "the " + std::string(random.Pick(kPlaces)); }
std::string ThingName(EvalRandom& random) { return Joined({random.Pick(kAdjectives), " ", random.Pick(kThings)}); }

std::vector<std::string> PeopleNames(EvalRandom& random, size_t count) {
  TIDEMILL_CHECK(count <= kMaxPeopleNames);
  std::vector<std::string> names;
  for (const size_t i : random.Sample(kMaxPeopleNames, count))
    names.push_back(Joined({kFirstNames[i / std::size(kLastNames)], " ", kLastNames[i % std::size(kLastNames)]}));
  return names;
}

std::span<const FactKind> FactKinds() { return kFacts; }

std::string FillPattern(std::string_view pattern, std::string_view person, std::string_view value,
                        std::string_view other) {
  std::string text;
  for (const char c : pattern) {
    if (c == '%') {
      text += person;
    } else if (c == '#') {
      text += value;
    } else if (c == '@') {
      text += other;
    } else {
      text += c;
    }
  }
  return text;
}

std::vector<PythonFunction> PythonFunctions(EvalRandom& random, size_t count) {
  TIDEMILL_CHECK(count <= kMaxFunctions);
  constexpr WordText kArguments[] = {"width", "level", "index", "total", "speed", "depth"};
  constexpr WordText kLocals[] = {"base", "step", "part", "rest", "mark", "gain"};
  constexpr WordText kOperators[] = {"+", "-", "*"};
  std::vector<PythonFunction> functions;
  for (const size_t i : random.Sample(std::size(kVerbs) * std::size(kNouns), count)) {
    const std::vector<size_t> arguments = random.Sample(std::size(kArguments), 2);
    const std::string_view a = kArguments[arguments[0]], b = kArguments[arguments[1]], local = random.Pick(kLocals);
    const auto op = [&] { return Joined({" ", random.Pick(kOperators), " "}); };
    functions.push_back({.name = Joined({kVerbs[i / std::size(kNouns)], "_", kNouns[i % std::size(kNouns)]}),
                         .rest = Joined({a,
                                         ", ",
                                         b,
                                         "):\n    ",
                                         local,
                                         " = ",
                                         a,
                                         op(),
                                         Number(random, 2, 97),
                                         op(),
                                         b,
                                         "\n    if ",
                                         local,
                                         " > ",
                                         Number(random, 100, 900),
                                         ":\n        return ",
                                         local,
                                         op(),
                                         a,
                                         "\n    return ",
                                         b,
                                         op(),
                                         Number(random, 2, 97),
                                         "\n"})});
  }
  return functions;
}

}  // namespace tidemill
