#!/usr/bin/env bash
# usage: scripts/paper.sh PANDOC OUT, e.g. build/paper
# Writes OUT/results.tex from docs/results.md, and results.pdf where there is a TeX.
set -euo pipefail
pandoc=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
"$pandoc" "$here/../docs/results.md" --from gfm --to latex --shift-heading-level-by=-1 \
    --template "$here/paper/template.tex" --lua-filter "$here/paper/filter.lua" --output "$out/results.tex"
echo "$out/results.tex"
if ! command -v pdflatex > /dev/null; then
    echo "No pdflatex here, so no PDF: install texlive-latex-recommended and texlive-latex-extra" >&2
    exit 0
fi
for _ in 1 2 3; do # tables settle their widths, then the pages
    (cd "$out" && pdflatex -interaction=nonstopmode -halt-on-error results.tex) > "$out/said" \
        || { tail -25 "$out/said" >&2; exit 1; }
done
echo "$out/results.pdf"
