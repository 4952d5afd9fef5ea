"""Draw docs/assets/architecture.svg: one training step, and the study around it.

python scripts/architecture.py
"""

from pathlib import Path

OUT = Path(__file__).parents[1] / "docs" / "assets" / "architecture.svg"
SIZE = (960, 430)

STYLE = """
text { font-family: system-ui, "Segoe UI", Roboto, sans-serif; font-size: 14px }
text { fill: #1b2330; text-anchor: middle }
.small { font-size: 12px; fill: #4a5568 }
.group { font-size: 12px; fill: #4a5568; text-anchor: start; font-weight: 600 }
rect { rx: 7; stroke-width: 1.4 }
.plain { fill: #ffffff; stroke: #7b8794 }
.engine { fill: #e3edfb; stroke: #3b6fb6 }
.judge { fill: #fbe8d8; stroke: #c66a1c }
.blend { fill: #fdf3d3; stroke: #b98900 }
.study { fill: #e6f4ea; stroke: #3d8b52 }
.frame { fill: #f7f9fb; stroke: #cbd2d9; stroke-dasharray: 5 4 }
path { fill: none; stroke: #5b6673; stroke-width: 1.5; marker-end: url(#tip) }
"""

# x, y, width, height, class, lines (the first is set larger)
BOXES = (
    (28, 150, 110, 62, "plain", ("prompts × n", "verl's rows")),
    (172, 150, 120, 62, "engine", ("rollout", "vLLM or HF")),
    (338, 62, 186, 42, "plain", ("rule reward R",)),
    (338, 112, 186, 42, "judge", ("judge's score q", "vLLM, HTTP, reward model")),
    (338, 162, 186, 42, "engine", ("log π_old, entropy H",)),
    (338, 212, 186, 42, "engine", ("log π_ref",)),
    (338, 262, 186, 42, "engine", ("values V",)),
    (572, 88, 168, 76, "blend", ("H → w", "R′ = (1 − w)·R + w·Q", "R″ = R′ − β·KL")),
    (572, 202, 168, 56, "plain", ("advantages", "GAE, GRPO, RLOO, …")),
    (788, 150, 138, 62, "engine", ("update", "critic, then actor")),
    (28, 362, 188, 46, "study", ("experiments × seeds", "params/study, Snakemake")),
    (264, 362, 188, 46, "study", ("runs", "metrics, rollouts, checkpoints")),
    (500, 362, 188, 46, "study", ("statistics", "paired by seed, intervals")),
    (736, 362, 190, 46, "study", ("reports", "M1, M2, M3, scoring")),
)
ARROWS = (
    "M138 181 H168",
    *(f"M292 181 C316 181 312 {y} 334 {y}" for y in (83, 133, 183, 233, 283)),
    *(f"M524 {y} C550 {y} 544 126 568 126" for y in (83, 133, 183, 233)),
    "M524 283 C550 283 546 230 568 230",
    "M656 164 V198",
    "M740 230 C766 230 762 181 784 181",
    "M857 150 V32 H232 V146",
    "M216 385 H260",
    "M452 385 H496",
    "M688 385 H732",
    "M358 362 V324",
)
LABELS = (
    (545, 26, "small", "new weights"),
    (20, 54, "group", "one step (Ray, one controller)"),
    (20, 350, "group", "the study"),
    (412, 349, "small", "each run"),
)


def drawing() -> str:
    """The picture as SVG."""
    width, height = SIZE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="One training step and the study around it">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><polygon points="0,0 8,4 0,8" fill="#5b6673"/>'
        "</marker></defs>",
        f'<rect x="0" y="0" width="{width}" height="{height}" fill="#ffffff" rx="0"/>',
        '<rect class="frame" x="10" y="36" width="940" height="288"/>',
    ]
    for x, y, box_width, box_height, kind, lines in BOXES:
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{box_width}" height="{box_height}"/>'
        )
        top = y + box_height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            small = ' class="small"' if number and kind != "blend" else ""
            place = f'x="{x + box_width / 2:g}" y="{top + 18 * number:g}"'
            parts.append(f"<text{small} {place}>{line}</text>")
    parts += [f'<path d="{arrow}"/>' for arrow in ARROWS]
    parts += [f'<text class="{k}" x="{x}" y="{y}">{text}</text>' for x, y, k, text in LABELS]
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(drawing(), encoding="utf-8")
