"""The page of `make demo`: the curve of a run, and eight answers before and after it.

`python scripts/demo_page.py RUN --out PAGE.html` asks the model that the run started from and the
one that it ended with for greedy answers to eight validation problems.
"""

import argparse
import io
from html import escape
from pathlib import Path

import matplotlib.pyplot as plt

from refblend.data.schema import PromptRow, read_rows
from refblend.data.tokenizer import encode_chat, load_tokenizer
from refblend.embedded.architecture import load_model
from refblend.embedded.generation import generate
from refblend.files import write_text
from refblend.rewards.gsm8k import compute_score
from refblend.study.runs.evaluate import final_checkpoint
from refblend.viewer.run import Run

ANSWERS = 8
CURVES = ("training reward", "judge's score", "weight w", "entropy", "response tokens")

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>refblend demo</title>
<style>body{{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}
table{{border-collapse:collapse}}td,th{{border:1px solid #ccc;padding:.3em .6em;text-align:left;
vertical-align:top;white-space:pre-wrap}}svg{{max-width:100%;height:auto}}</style>
<h1>SmolLM2-135M-Instruct after {steps} PPO steps</h1>
<p>Sums of two numbers from reasoning-gym, {problems} training problems, {responses} responses a
step. A response is rewarded when its last number is the answer; that reward is blended with the
score of a judge: the same model before training, held to the format by guided decoding. Such a
judge has learned nothing about grading; <code>params/embedded/smollm.yaml</code> trains one that
has.</p>
{curve}
<h2>Eight answers before and after</h2>
<p>Greedy; right before: {before}, after: {after}.</p>
<table><tr><th>Problem<th>Before<th>After</tr>{rows}</table>
<p>All metrics and responses: <code>refblend show {run} --html run.html</code></p></html>
"""


def curve(run: Run) -> str:
    """The main metrics over the steps, as SVG."""
    found = {name: values for name, values in run.main_metrics() if name in CURVES}
    figure, axes = plt.subplots(1, len(found), figsize=(3 * len(found), 2.4), squeeze=False)
    for axis, (name, values) in zip(axes.flat, found.items(), strict=True):
        axis.plot(values.index, values, marker="o")
        axis.set(title=name, xlabel="step")
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def answers(model: Path, start: Path, rows: list[PromptRow], length: int) -> list[str]:
    """Greedy answers of a model with the tokenizer of the one that it started from."""
    tokenizer = load_tokenizer(start)
    prompts = [encode_chat(tokenizer, row.messages) for row in rows]
    outputs = generate(load_model(model), prompts, tokenizer.eos_token_id, length)
    return [tokenizer.decode(o.token_ids, skip_special_tokens=True) for o in outputs]


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    run = Run.open(given.run)
    start = Path(run.settings["actor_rollout_ref.model.path"])
    rows = read_rows(run.settings["data.val_files"][0])[:ANSWERS]
    length = run.settings["data.max_response_length"]
    end = final_checkpoint(given.run)
    texts = [answers(model, start, rows, length) for model in (start, end.actor)]

    def right(text: str, row: PromptRow) -> bool:
        return compute_score(text, row.ground_truth, "flexible") == 1.0

    marks = [[right(t, r) for t, r in zip(column, rows, strict=True)] for column in texts]
    cells = ""
    for number, row in enumerate(rows):
        shown = [
            f"<td>{'✓' if marks[side][number] else '✗'} {escape(texts[side][number])}"
            for side in (0, 1)
        ]
        cells += f"<tr><td>{escape(row.question)} ({escape(row.ground_truth)})" + "".join(shown)
    page = PAGE.format(
        steps=end.step,
        problems=len(read_rows(run.settings["data.train_files"][0])),
        responses=run.settings["data.train_batch_size"]
        * run.settings["actor_rollout_ref.rollout.n"],
        curve=curve(run),
        before=sum(marks[0]),
        after=sum(marks[1]),
        rows=cells,
        run=given.run,
    )
    write_text(given.out, page)
    print(f"{given.out}: {sum(marks[0])} of {len(rows)} right before, {sum(marks[1])} after")


if __name__ == "__main__":
    main()
