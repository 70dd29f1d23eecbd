"""Which option an answer names, form by form."""

import time

import pytest

from nemo_gym.resources_servers.mcqa.extract import extract, extract_by_pattern, final_text

OPTIONS = {"A": "Rome", "B": "Paris", "C": "Madrid", "D": "the Sun"}

STATEMENTS = [
    (r"\boxed{B}", "B"),
    (r"\boxed{b}", "B"),
    (r"so we get $\boxed{\text{B}}$.", "B"),
    (r"\boxed{\text{B. Paris}}", "B"),
    (r"\boxed{\textbf{\text{C}}}", "C"),
    (r"$\boxed{\mathbf{(b)}}$", "B"),
    (r"\boxed B", "B"),
    (r"\fbox{C}", "C"),
    (r"\boxed{A} and then \boxed{C}", "C"),
    (r"\boxed{A, B}", None),
    (r"\boxed{Z}", None),
    (r"\boxed{42}", None),
    (r"\boxed{B", None),
    ("Answer: B", "B"),
    ("answer: b", "B"),
    ("ANSWER : B", "B"),
    ("**Answer:** B", "B"),
    ("Answer: **B**", "B"),
    ("Answer: (b)", "B"),
    ("Answer: [B]", "B"),
    ("Answer: `B`", "B"),
    ("Answer: \u201cB\u201d", "B"),
    ("Answer\uff1aC", "C"),
    ("Answer - B", "B"),
    ("Answer \u2014 B", "B"),
    ("Answer: B. Paris", "B"),
    ("Answer: B (Paris)", "B"),
    ("Answer: Option B", "B"),
    ("Answer: The correct option is B.", "B"),
    ("The correct answer is option C.", "C"),
    ("the answer is b.", "B"),
    ("My answer is (A) Rome", "A"),
    ("Correct choice: C", "C"),
    (r"Final answer is: $\text{C}$", "C"),
    (r"Answer: \boxed{C}", "C"),
    ("Answer:\nB", "B"),
    ("## Answer\n\n**B**", "B"),
    ("Answer: B\n\nExplanation: A and C are wrong.", "B"),
    ("Answer: A\nNo, wait.\nAnswer: D", "D"),
    (r"Answer: A, but after all \boxed{B}", "B"),
    ("Answer: B, because A is too small", "B"),
    ("Answer: B, not A", "B"),
    ("Answer: E", None),
    ("Answer: B\nAnswer: E", None),
    ("Answer: A or B", None),
    ("Answer: A and C", None),
    ("Answer: B/C", None),
    ("Answer: B. Rome", None),
    ("The answer is not B.", None),
    ("Answer: none of the above", None),
    ("Answer: D-Day", None),
    ("Answer: I'm not sure", None),
]
ARTICLES = [
    ("The answer is a bit hard to find.", None),
    ("Answer: A dog", None),
    ("A dog is an animal.", None),
    ("I think so.", None),
    ("The letter a is a vowel", None),
    ("A", "A"),
    ("a", "A"),
    ("Answer: A", "A"),
    ("Answer: A Rome", "A"),
    ("The answer is A because it is so.", "A"),
    ("A is correct.", "A"),
    ("a. Rome", "A"),
]
LETTERS = [
    ("B", "B"),
    ("b", "B"),
    ("(b)", "B"),
    ("**B**", "B"),
    ("B.", "B"),
    ("B) Paris", "B"),
    ("B: Paris", "B"),
    ("D. the Sun", "D"),
    ("Let me think.\n\nB", "B"),
    ("It is Paris (B).", "B"),
    ("Z", None),
    ("C. Paris", None),
    ("A\nB", None),
    ("A. Rome\nB. Paris\nC. Madrid", None),
    ("Paris (B) or Rome (A)", None),
    ("Vitamin D is made in the skin.", None),
    ("Plan B is good", None),
    ("Paris", None),
    ("", None),
]
VERDICTS = [
    ("B is the correct answer.", "B"),
    ("Option D is right", "D"),
    ("B is correct. No, C is correct.", None),
    ("B is not correct", None),
]


@pytest.mark.parametrize(("text", "letter"), [*STATEMENTS, *ARTICLES, *LETTERS, *VERDICTS])
def test_an_answer_names_an_option_or_none(text: str, letter: str | None) -> None:
    assert extract(text, OPTIONS).letter == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Paris", "B"),
        ("It is paris.", "B"),
        ("The Sun", "D"),
        ("The answer is Paris", "B"),
        ("Answer: Rome. Answer: Paris.", "B"),
        ("Rome is wrong.\n**Paris**", "B"),
        ("D", "D"),
        ("Paris or Rome", None),
        ("B. Rome", None),
        ("sun", None),
        ("parisian", None),
    ],
)
def test_the_text_of_an_option_counts_where_the_row_says_so(text: str, letter: str | None) -> None:
    assert extract(text, OPTIONS, "letter_or_text").letter == letter


def test_a_mention_within_a_longer_option_is_not_a_mention() -> None:
    options = {"A": "oxide", "B": "carbon oxide", "C": "water"}

    assert extract("That gas is carbon oxide, I think", options, "letter_or_text").letter == "B"


@pytest.mark.parametrize(
    ("mode", "text", "letter"),
    [
        ("boxed", r"Answer: A, \boxed{B}", "B"),
        ("boxed", "Answer: A", None),
        ("boxed", "A", None),
        ("answer_line", r"\boxed{A} Answer: B", "B"),
        ("answer_line", r"\boxed{A}", None),
        ("answer_line", "A", None),
        ("letter", "Paris", None),
    ],
)
def test_a_stricter_mode_reads_only_its_form(mode: str, text: str, letter: str | None) -> None:
    assert extract(text, OPTIONS, mode).letter == letter  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "text", "letter"),
    [
        (r"<choice>(.*?)</choice>", "<choice>A</choice> <choice> b </choice>", "B"),
        (r"<choice>(.*?)</choice>", "<choice>Madrid</choice>", "C"),
        (r"(?:x=(\w))|(?:y=(\w))", "y=D", "D"),
        (r"[A-D]$", "so D", "D"),
        (r"<choice>(.*?)</choice>", "Answer: B", None),
        (r"<choice>(.*?)</choice>", "<choice>E</choice>", None),
    ],
)
def test_a_pattern_of_the_row_takes_the_place_of_the_rule(
    pattern: str, text: str, letter: str | None
) -> None:
    assert extract_by_pattern(text, OPTIONS, pattern).letter == letter


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>Answer: A</think>Answer: B", "Answer: B"),
        ("Answer: A</think>\nAnswer: B", "Answer: B"),
        ("<think>Answer: A", ""),
        ("Answer: B <think>or A", "Answer: B"),
        ("<thinking>A</thinking>B", "B"),
        ("B", "B"),
    ],
)
def test_thinking_in_tags_is_not_the_answer(text: str, answer: str) -> None:
    assert final_text(text) == answer


@pytest.mark.parametrize(
    "unit",
    ["\n", " ", "*", "(", "[", "{", "`$(", "- ", "answer", "Answer: ", "Answer\n", "Answer: A or ",
     "\\boxed{", "\\text{", "A) ", "B is ", "Paris ", "<think>", "</think>"],
)  # fmt: skip
def test_a_model_that_repeats_itself_for_pages_costs_no_time(unit: str) -> None:
    text = "answer" + unit * (400_000 // len(unit)) + "x" + "}" * 1000
    began = time.process_time()

    extract(final_text(text), OPTIONS, "letter_or_text")

    assert time.process_time() - began < 2.0
