"""Write the dataset rows of `mcqa` from the questions in `mcqa_questions.yaml`.

    python scripts/demo/build_mcqa_data.py          writes data/example.jsonl and data/demo.jsonl
    python scripts/demo/build_mcqa_data.py --check  says whether they are what would be written

Each question is asked as its dataset needs it: `example` in words that any instruction-following
model understands; `demo` with four worked examples before it, which a very small model needs.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

__all__ = ["rendered"]

_HERE = Path(__file__).resolve().parent
_DATA = _HERE.parents[1] / "src" / "nemo_gym" / "resources_servers" / "mcqa" / "data"
_LETTERS = "ABCDE"
_ENDINGS = (
    'Think it through briefly, then end with "Answer: " and the letter of the right option.',
    "Put the letter of the right option in \\boxed{}.",
)
# None of these is asked in the demo, and every letter is right once.
_WORKED: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Which animal can fly?", ("fish", "eagle", "horse", "snake"), "eagle"),
    ("What is 5 + 3?", ("7", "9", "6", "8"), "8"),
    ("What is the capital of Italy?", ("Rome", "Lisbon", "Vienna", "Athens"), "Rome"),
    ("What is frozen water called?", ("steam", "sand", "ice", "oil"), "ice"),
)


def rendered() -> dict[str, str]:
    """Return the text of every dataset file by its name."""
    questions = yaml.safe_load((_HERE / "mcqa_questions.yaml").read_text("utf-8"))
    rows = {
        "example.jsonl": map(_example_row, range(len(questions["example"])), questions["example"]),
        "demo.jsonl": map(_demo_row, questions["demo"]),
    }
    return {name: "".join(f"{_line(row)}\n" for row in each) for name, each in rows.items()}


def _example_row(number: int, question: Mapping[str, Any]) -> dict[str, Any]:
    ending = _ENDINGS[number % len(_ENDINGS)]
    listed = _listed(question["options"])
    text = f"{question['question']}\n\n{listed}\n\n{ending}"
    return _row(question, {"input": [{"role": "user", "content": text}]}, "letter")


def _demo_row(question: Mapping[str, Any]) -> dict[str, Any]:
    messages = [*_worked(), _asked(question["question"], question["options"])]
    return _row(question, {"input": messages}, "letter_or_text")


def _worked() -> Iterator[dict[str, Any]]:
    for question, options, answer in _WORKED:
        yield _asked(question, options)
        # With its type: llama.cpp takes an assistant's message only so.
        content = [{"type": "output_text", "text": answer}]
        yield {"type": "message", "role": "assistant", "content": content}


def _asked(question: str, options: Sequence[str]) -> dict[str, Any]:
    return {"role": "user", "content": f"{question}\n{_listed(options)}"}


def _listed(options: Sequence[str]) -> str:
    return "\n".join(f"{letter}. {text}" for letter, text in zip(_LETTERS, options, strict=False))


def _row(question: Mapping[str, Any], params: dict[str, Any], mode: str) -> dict[str, Any]:
    return {
        "id": question["id"],
        "responses_create_params": params,
        "options": dict(zip(_LETTERS, question["options"], strict=False)),
        "expected_answer": question["answer"],
        "grading_mode": mode,
        "subject": question["subject"],
        "difficulty": question["difficulty"],
    }


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)


def main() -> int:
    """Write, or check with `--check`; return 1 where a file is not what it should be."""
    different = [
        name
        for name, text in rendered().items()
        if not (_DATA / name).is_file() or (_DATA / name).read_text("utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for name in different:
            print(f"{name} is not what {Path(__file__).name} writes")
        return 1 if different else 0
    for name, text in rendered().items():
        (_DATA / name).write_text(text, "utf-8")
    print(f"wrote {', '.join(rendered())} to {_DATA}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
