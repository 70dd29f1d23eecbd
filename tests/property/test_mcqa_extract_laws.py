"""Laws of reading an answer."""

from string import ascii_uppercase

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.resources_servers.mcqa.extract import MODES, extract, final_text

OPTIONS = {"A": "Rome", "B": "Paris", "C": "Madrid", "D": "the Sun"}

letters = st.sampled_from("ABCD")
strangers = st.sampled_from([c for c in ascii_uppercase if c not in OPTIONS])
modes = st.sampled_from(MODES)
stating_modes = st.sampled_from(["letter", "letter_or_text"])
wrappers = st.sampled_from(["{}", "({})", "**{}**", "`{}`", "${}$", "[{}]", "_{}_", "{}."])
forms = st.sampled_from(
    ["Answer: {}", "**Answer:** {}", "The answer is {}", "The correct answer is option {}",
     "Final answer: {}", "answer is: {}"]
)  # fmt: skip
# Words in which nothing can be taken for an answer.
talk = st.text(alphabet="bcdefghjklmnopqrstuvwxyz ,\n", max_size=60).map(
    lambda words: " ".join(word for word in words.split(" ") if len(word) > 1)
)


@given(st.text(max_size=300), modes)
def test_any_text_gives_an_option_or_none(text: str, mode: str) -> None:
    found = extract(final_text(text), OPTIONS, mode)  # type: ignore[arg-type]

    assert found.letter is None or found.letter in OPTIONS


@given(talk, forms, wrappers, letters, stating_modes)
def test_what_is_stated_at_the_end_is_read_whatever_was_said_before(
    before: str, form: str, wrapper: str, letter: str, mode: str
) -> None:
    text = f"{before}\n{form.format(wrapper.format(letter))}"

    assert extract(text, OPTIONS, mode).letter == letter  # type: ignore[arg-type]


@given(st.lists(st.tuples(forms, letters), min_size=1, max_size=4))
def test_the_last_statement_wins(said: list[tuple[str, str]]) -> None:
    text = "\n".join(form.format(letter) for form, letter in said)

    assert extract(text, OPTIONS).letter == said[-1][1]


@given(st.lists(letters, min_size=1, max_size=4), talk)
def test_the_last_box_wins(said: list[str], between: str) -> None:
    text = between.join(rf" $\boxed{{\text{{{letter}}}}}$ " for letter in said)

    assert extract(text, OPTIONS).letter == said[-1]


@given(forms, strangers, letters)
def test_a_letter_outside_the_options_is_no_answer(form: str, letter: str, earlier: str) -> None:
    text = f"Answer: {earlier}\n{form.format(letter)}"

    assert extract(text, OPTIONS).letter is None


@given(st.sets(letters, min_size=2), st.sampled_from([" and ", " or ", ", ", "/"]), forms)
def test_several_letters_in_one_statement_are_no_answer(
    said: set[str], joint: str, form: str
) -> None:
    assert extract(form.format(joint.join(sorted(said))), OPTIONS).letter is None


@given(wrappers, letters)
def test_a_letter_alone_is_read_in_either_case(wrapper: str, letter: str) -> None:
    upper, lower = (wrapper.format(each) for each in (letter, letter.lower()))

    assert extract(upper, OPTIONS).letter == extract(lower, OPTIONS).letter == letter


@given(st.lists(letters, min_size=2, max_size=6), wrappers)
def test_letters_alone_must_agree(said: list[str], wrapper: str) -> None:
    text = "\n".join(wrapper.format(letter) for letter in said)

    assert extract(text, OPTIONS).letter == (said[0] if len(set(said)) == 1 else None)


@given(
    st.sampled_from(["A {} {}.", "The answer is a {} {}.", "Answer: a {} {}", "I have a {} {}"]),
    st.sampled_from(["big", "very", "red", "quite", "dog"]),
    st.sampled_from(["dog", "apple", "idea", "house"]),
)
def test_an_article_is_never_an_answer(sentence: str, first: str, second: str) -> None:
    assert extract(sentence.format(first, second), OPTIONS).letter is None


@given(talk, letters)
def test_thinking_changes_nothing(thought: str, letter: str) -> None:
    text = final_text(f"<think>{thought}\nAnswer: {letter}</think>\nAnswer: B")

    assert extract(text, OPTIONS).letter == "B"
