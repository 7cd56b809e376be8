#!/usr/bin/env python3
"""Remakes the demo assets of pcload, byte for byte.

    pip install 'tokenizers==0.23.2'
    python3 assets/demo/make.py            # writes the three files
    python3 assets/demo/make.py --check    # writes nothing, exit 1 if one differs

What it makes, all of it our own text put together from the word lists below:

    corpus.jsonl              word problems, one {"question": ...} a line
    unicode.jsonl             the same idea with everything that breaks tokenizers:
                              CJK, emoji, combining marks, right-to-left text,
                              fractions and currency signs, long words, code
    tokenizer/tokenizer.json  byte-level BPE without BOS, trained on more
                              problems of the same kind (another seed) and on
                              unicode.jsonl

Randomness comes from the generator below, not from Python's, so that no Python
version changes a byte.
"""

import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
CORPUS_LINES = 360
TRAINING_LINES = 12000
VOCABULARY = 3072
END_OF_TEXT = "<|endoftext|>"
# Letters, short runs of digits, punctuation, white space: like the patterns of
# current models, so that the demo shows what a real tokenizer does.
PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


class Lottery:
    """A 64-bit linear congruential generator (Knuth's MMIX constants)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def pick(self, items):
        return items[self.below(len(items))]

    def picks(self, items, count):
        """`count` different ones."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]


NAMES = """Ada Amir Anouk Bela Bruno Carmen Chidi Dalia Deniz Edda Elias Emeka Farah Finn
Greta Hana Hugo Ines Ivo Jonas Juno Kaya Kofi Lena Lior Mara Milan Nadia Nils Noor Olga
Omar Paula Pavel Quinn Rafa Rosa Samir Selma Sota Tamar Theo Uma Vera Wanda Xenia Yara
Yusuf Zofia""".split()
PLACES = """bakery library workshop museum harbor orchard kitchen school garage theater
station warehouse market nursery studio hospital printery observatory greenhouse dairy
brewery archive lighthouse monastery quarry sawmill shipyard vineyard laundry pharmacy
planetarium zoo""".split()
THINGS = """apples bolts books bottles boxes bricks buttons candles carpets chairs coins
cups drums envelopes feathers flags flowers gears hats jars keys kites lamps lemons
letters maps marbles mirrors nails notebooks oranges paintings pencils plates postcards
pumpkins ribbons ropes seeds shells spoons stamps stones tickets tiles tomatoes towels
trays umbrellas vases watches wheels whistles""".split()
LIQUIDS = "milk honey paint vinegar cider oil juice soup varnish water".split()
VEHICLES = "train bus ferry tram truck bicycle barge balloon sledge scooter".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
COLORS = "amber black blue bronze crimson gray green indigo ivory orange purple red".split()
RELATIVES = "aunt brother cousin daughter father grandmother mother neighbor sister uncle".split()
MONTHS = "January February March April June July August September October November".split()
VERBS = "packs sells sorts polishes counts paints repairs delivers labels wraps".split()
MOODS = """carefully quietly slowly quickly proudly patiently cheerfully secretly eagerly
reluctantly""".split()
ASIDES = [
    "",
    "",
    "",
    " It rained all week.",
    " Nobody else helped.",
    " The price did not change.",
    " The old scale is accurate to one gram.",
    " Two more were hidden under the counter, and they do not count.",
    " The manager wrote everything down in a green notebook.",
    " Everyone agreed that this was fair.",
    " The doors opened at half past eight.",
]
ENDINGS = ["", "", " Explain your steps.", " Round down.", " Give the answer as a whole number."]

TEMPLATES = [
    "{name} {verb} {a} {things} every morning and {b} every evening. How many {things} does {name} handle in {c} days?",
    "The {place} keeps {a} {things} on each of its {c} shelves. After {day}, {b} of them are gone. How many {things} are left?",
    "The {vehicle} from the {place} to the {place2} covers {a} kilometers in {c} hours. How far does it go in {d} hours at the same speed?",
    "{name} buys {c} {color} {things} for {d} dollars each and pays with a {e}-dollar note. How much change does {name} get?",
    "At the {place}, {name} and {name2} share {a} {things} in the ratio {c} to {d}. How many more {things} does {name2} get than {name}?",
    "A tank holds {a} liters of {liquid}. It loses {c} liters an hour and {name} pours {d} liters back every two hours. How much {liquid} is in it after {f} hours?",
    "In {month}, the {place} welcomed {a} visitors; in the following month it welcomed {b} more. What was the total over both months?",
    "{name}'s {relative} is {c} years older than twice {name}'s age. If {name} is {d}, how old is the {relative}?",
    "Each box of {things} weighs {d} kilograms, and the empty {vehicle} weighs {a} kilograms. How heavy is the {vehicle} with {c} boxes?",
    "{name} reads {d} pages on {day} and twice as many each day after. On which day has {name} read more than {a} pages?",
    "There are {a} {things} at the {place}: one half is {color}, a quarter is {color2}, and the rest is plain. How many are plain?",
    "\"{a} {things}, and not one less,\" said {name}. The {place} had {b} and ordered the remainder in packs of {c}. How many packs was that?",
    "{name} {mood} saves {d} cents a day. Since {month}, {c} weeks have passed. How many dollars and cents has {name} saved?",
    "A ribbon of {a} centimeters is cut into pieces of {d} centimeters. How many whole pieces are there, and how much is left over?",
    "Tickets for the {vehicle} cost {d} dollars for adults and {c} for children. A group of {f} adults and {g} children pays how much?",
    "The {place} opens at 9:15 and closes at 17:45, with a break of {h} minutes. How many minutes is it open on {day} and {day2} together?",
    "{name} mixes {c} parts of {liquid} with {d} parts of {liquid2}. How many milliliters of {liquid} are in {a} milliliters of the mixture?",
    "If {c} workers at the {place} polish {a} {things} in {d} hours, how long do {f} workers need for the same number?",
    "{name} walks up {a} steps, rests, walks down {c}, and then climbs {d} more. How many steps above the start is {name} now?",
    "On {day} the {place} sold {a} {things} at {c} dollars; on {day2} it sold {b} at half that price. What did it earn altogether?",
    "Out of {a} {color} {things}, {h} percent are broken, and {name} can repair a third of the broken ones. How many stay broken?",
    "{name} writes down the numbers from {c} to {a}. How many of them end in {g}?",
    "A square garden beside the {place} has sides of {c} meters. {name} plants {things} every {g} meters along the fence. How many fit?",
    "{name}, {name2} and {name3} pick {a}, {b} and {h} {things}. They put them together and split them evenly. How many does each receive?",
    "The {relative} of {name} lends {e} dollars at {g} percent a year. What is owed after {f} years, if nothing is paid back?",
    "Three {things} cost as much as {g} {things2}. If one of the {things2} costs {c} cents, what do {f} {things} cost?",
]


def problem(lottery):
    """One word problem."""
    pick, picks, between = lottery.pick, lottery.picks, lottery.between
    name, name2, name3 = picks(NAMES, 3)
    place, place2 = picks(PLACES, 2)
    things, things2 = picks(THINGS, 2)
    liquid, liquid2 = picks(LIQUIDS, 2)
    day, day2 = picks(DAYS, 2)
    color, color2 = picks(COLORS, 2)
    text = pick(TEMPLATES).format(
        name=name, name2=name2, name3=name3, place=place, place2=place2, things=things,
        things2=things2, liquid=liquid, liquid2=liquid2, day=day, day2=day2, color=color,
        color2=color2, vehicle=pick(VEHICLES), relative=pick(RELATIVES), month=pick(MONTHS),
        verb=pick(VERBS), mood=pick(MOODS), a=between(60, 990), b=between(11, 420),
        c=between(3, 48), d=between(2, 36), e=10 * between(5, 90), f=between(2, 12),
        g=between(2, 9), h=5 * between(1, 18),
    )
    return text + pick(ASIDES) + pick(ENDINGS)


UNICODE_TEMPLATES = [
    "{name} geht {n}½ km bis zum Café, zahlt {m} € und bekommt ¾ davon zurück. Wie viel bleibt übrig?",
    "{name}買了{n}個蘋果和{m}個橘子，送給朋友三個。還剩下多少個水果？",
    "{name}さんは毎朝{n}ページ、毎晩{m}ページの本を読みます。七日間で何ページ読みますか。",
    "{name}은(는) 사과 {n}개와 배 {m}개를 샀습니다. 모두 몇 개입니까?",
    "Le château reçoit {n} élèves à l’œuvre et {m} maîtres ; combien sont-ils, naïfs ou non ?",
    "{name} packs {n} 🍎, {m} 🍐 and one 👩‍👩‍👧‍👦 photo next to the 🏳️‍🌈 and the 🇩🇪 🇯🇵 flags. 👍🏽 How many fruits?",
    "Decomposed: cafe\u0301 nai\u0308ve Zu\u0308rich A\u030angstro\u0308m; stacked: Z\u0351\u036ba\u0321\u034dl\u0316\u0323g\u0353o\u0331 by {name}, {n} + {m} marks.",
    "לִינָה קנתה {n} תפוחים ו־{m} אגסים. כמה פירות יש לה?",
    "اشترت {name} {n} تفاحةً و{m} برتقالة، فكم ثمرةً لديها؟",
    "सीमा के पास {n} सेब और {m} आम हैं। कुल कितने फल हैं?",
    "แม่ซื้อส้ม {n} ผลและมะม่วง {m} ผล รวมทั้งหมดกี่ผล",
    "Der Donaudampfschifffahrtsgesellschaftskapitänsmützenfabrikdirektor {name} zählt {n} Rindfleischetikettierungsüberwachungsaufgaben und {m} Kraftfahrzeughaftpflichtversicherungen.",
    "def total(n={n}, m={m}):\\n    return [x**2 for x in range(n) if x % m != 0]  # {name}: O(n)",
    "let π = 3.14159_f64; assert!((π * {n}.0 - {m}.0).abs() > 1e-9, \"{name} ≠ ∑\"); // ∀x∈ℝ: x²≥0",
    "https://example.org/{name}/%E2%82%AC?q=naïve&n={n}#§{m} costs £{m}, ¥{n}00 or ₿0.00{m}; 5′ × 7″ ≈ 35 in², −{n} °C…",
    "xXx{name}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{n}\u200b\u2060zero\u200dwidth{m}",
    "Сколько будет {n} плюс {m}, если {name} дважды ошибётся? Ёлка, щука, объём.",
    "Η {name} έχει {n} βιβλία και ο Ἀχιλλεύς {m}. Πόσα είναι όλα μαζί;",
    "𝔉𝔯𝔞𝔨𝔱𝔲𝔯 {name} 𝟙𝟚𝟛 ﬁve ﬂoors ＦＵＬＬ　ＷＩＤＴＨ {n}～{m} ①②③ ㎏ ㍿",
    "ታላቋ {name} {n} መጻሕፍት እና {m} እስክሪብቶ አላት። ᏣᎳᎩ ᓀᐦᐃᔭᐍᐏᐣ 𓀀𓂀 𒀭 🜁",
]


def unicode_lines(lottery, rounds):
    """Every template `rounds` times, with other names and numbers."""
    lines = []
    for _ in range(rounds):
        for template in UNICODE_TEMPLATES:
            lines.append(
                template.format(
                    name=lottery.pick(NAMES), n=lottery.between(2, 97), m=lottery.between(2, 97)
                )
            )
    return lines


def distinct(make, lottery, count):
    """`count` different texts."""
    lines, seen = [], set()
    while len(lines) < count:
        line = make(lottery)
        if line not in seen:
            seen.add(line)
            lines.append(line)
    return lines


def jsonl(lines):
    rows = (json.dumps({"question": line}, ensure_ascii=False) for line in lines)
    return "".join(row + "\n" for row in rows).encode()


def train(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer.to_str(pretty=False).encode() + b"\n"


def main():
    corpus = distinct(problem, Lottery(2024), CORPUS_LINES)
    unicode_corpus = unicode_lines(Lottery(7), 3)
    training = distinct(problem, Lottery(1), TRAINING_LINES)
    files = {
        "corpus.jsonl": jsonl(corpus),
        "unicode.jsonl": jsonl(unicode_corpus),
        "tokenizer/tokenizer.json": train(training + 20 * unicode_corpus),
    }
    different = []
    for name, data in files.items():
        path = HERE / name
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        elif not path.exists() or path.read_bytes() != data:
            different.append(name)
    if different:
        sys.exit("not as made by this script: " + ", ".join(different))


if __name__ == "__main__":
    main()
