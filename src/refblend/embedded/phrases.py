"""The sentences of the embedded word problems and of their worked solutions.

The lexicon is small: a tokenizer of about 600 entries has every word as one token. ``{n}`` and
``{m}`` are names, ``{o}`` is an object, ``{v}`` is the step's number, and the only one.
"""

NAMES = ("Tom", "Ann", "Sam", "Eva", "Ben", "Mia", "Leo", "Zoe")
OBJECTS = ("eggs", "pens", "nuts", "cups", "toys", "coins", "books", "cards")

OPENINGS = (
    "{n} has {v} {o}.",
    "There are {v} {o} in a box.",
    "{n} finds {v} {o}.",
    "A shop has {v} {o}.",
    "{n} starts with {v} {o}.",
    "A bag holds {v} {o}.",
)

STEPS = {
    "+": (
        "{m} gives {v} more.",
        "Then {v} more come in.",
        "Then {v} are added.",
        "{m} puts in {v} more.",
        "The number grows by {v}.",
    ),
    "-": (
        "Then {v} get lost.",
        "{m} takes {v} away.",
        "Then {v} are sold.",
        "Then {v} of them break.",
        "{m} uses up {v}.",
    ),
    "*": (
        "Then there are {v} times as many.",
        "{m} makes it {v} times as many.",
        "The number grows {v} times.",
        "Each of them turns into {v}.",
    ),
    "/": (
        "They are split in {v} equal parts and one is kept.",
        "{v} friends share them and {m} keeps one share.",
        "{m} keeps one of {v} equal parts.",
        "Only one in {v} is kept.",
    ),
}

QUESTIONS = ("How many {o} are there now?", "How many are left?", "What is the number of {o} now?")

PADDING = (
    "It is a warm day.",
    "The sun is out and the sky is blue.",
    "{m} sings a song about the sea.",
    "A cat sits near the door.",
    "The bus is late again.",
    "{m} and {n} talk about the day.",
    "The box is red and the bag is blue.",
    "The door of the shop is open.",
)
"""Sentences irrelevant to the answer; long problems are padded with them."""

FILLER = (
    "Let me think.",
    "I look at the numbers again.",
    "This is not so hard.",
    "We can do it.",
    "Now the next part.",
    "That seems right.",
)
"""Sentences of a rambling solution, without any step of the calculation."""
