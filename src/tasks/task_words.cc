// SPDX-License-Identifier: MIT
#include "tasks/task_words.h"

namespace clearhead {
namespace {

constexpr std::string_view kNames[] = {
    "Alice",  "Andrew", "Anna",  "Arthur", "Ben",    "Charles", "Clara",   "Daniel",
    "David",  "Edward", "Emma",  "Frank",  "George", "Grace",   "Henry",   "Jack",
    "James",  "Jane",   "John",  "Joseph", "Kate",   "Laura",   "Lucy",    "Mark",
    "Martin", "Mary",   "Paul",  "Peter",  "Philip", "Robert",  "Rose",    "Ruth",
    "Sarah",  "Simon",  "Susan", "Thomas", "Tom",    "Walter",  "William", "Will"};

constexpr std::string_view kObjects[] = {"book", "letter", "ring",  "key",    "cup",  "ball",
                                         "hat",  "knife",  "drink", "flower", "coat", "box"};

constexpr std::string_view kPlaces[] = {"house", "garden", "school", "church",
                                        "shop",  "river",  "market", "station"};

constexpr std::string_view kEvents[] = {"war",     "journey", "voyage", "marriage", "peace",
                                        "reign",   "famine",  "siege",  "quarrel",  "strike",
                                        "project", "trial",   "plague", "alliance", "conflict"};

constexpr std::string_view kNouns[] = {
    "time",   "man",    "day",    "way",    "hand",   "house",  "door",    "water",  "night",
    "head",   "voice",  "room",   "face",   "tree",   "road",   "river",   "stone",  "fire",
    "light",  "horse",  "wood",   "sea",    "ship",   "town",   "book",    "table",  "garden",
    "window", "heart",  "king",   "child",  "mother", "father", "brother", "sister", "friend",
    "word",   "letter", "world",  "year",   "name",   "land",   "wind",    "bird",   "dog",
    "snow",   "rain",   "gold",   "silver", "bread",  "wine",   "sword",   "chair",  "bed",
    "wall",   "church", "street", "bridge", "field",  "hill"};

constexpr OppositePair kOpposites[] = {
    {"large", "small"}, {"hot", "cold"},     {"good", "bad"},        {"old", "young"},
    {"high", "low"},    {"long", "short"},   {"fast", "slow"},       {"hard", "soft"},
    {"rich", "poor"},   {"dark", "light"},   {"full", "empty"},      {"strong", "weak"},
    {"happy", "sad"},   {"early", "late"},   {"near", "far"},        {"open", "closed"},
    {"wet", "dry"},     {"clean", "dirty"},  {"thick", "thin"},      {"wide", "narrow"},
    {"true", "false"},  {"first", "last"},   {"loud", "quiet"},      {"simple", "complex"},
    {"black", "white"}, {"day", "night"},    {"love", "hate"},       {"war", "peace"},
    {"life", "death"},  {"begin", "end"},    {"win", "lose"},        {"give", "take"},
    {"up", "down"},     {"left", "right"},   {"front", "back"},      {"north", "south"},
    {"east", "west"},   {"friend", "enemy"}, {"question", "answer"}, {"always", "never"}};

}  // namespace

std::span<const std::string_view> TaskNames() { return kNames; }
std::span<const std::string_view> TaskObjects() { return kObjects; }
std::span<const std::string_view> TaskPlaces() { return kPlaces; }
std::span<const std::string_view> TaskEvents() { return kEvents; }
std::span<const std::string_view> TaskNouns() { return kNouns; }
std::span<const OppositePair> TaskOpposites() { return kOpposites; }

}  // namespace clearhead
