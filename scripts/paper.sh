#!/usr/bin/env bash
# usage: scripts/paper.sh PANDOC FOLDER, e.g. results/cpu/m3
# Writes FOLDER/report.tex from FOLDER/report.md, with the figures' PDF files, and report.pdf where there is a
# TeX. The same report gives the same bytes of report.tex.
set -euo pipefail
pandoc=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
[ -e "$folder/report.md" ] || { echo "$folder has no report.md: make the study's report first" >&2; exit 2; }
while read -r figure; do
    [ -e "$folder/$figure.pdf" ] || { echo "$folder has no $figure.pdf: make the report anew" >&2; exit 2; }
done < <(sed -nE 's|^!\[.*\]\((figures/[A-Za-z0-9_]+)\.svg\)$|\1|p' "$folder/report.md")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$pandoc" "$folder/report.md" --from gfm --to latex --shift-heading-level-by=-1 \
    --template "$here/paper/template.tex" --lua-filter "$here/paper/filter.lua" --output "$made/report.tex"
mv "$made/report.tex" "$folder/report.tex"
echo "$folder/report.tex"
if ! command -v pdflatex > /dev/null; then
    echo "No pdflatex here, so no report.pdf: install texlive-latex-recommended and texlive-latex-extra" >&2
    exit 0
fi
for _ in 1 2 3; do # tables settle their widths, then the pages
    (cd "$folder" && pdflatex -interaction=nonstopmode -halt-on-error -output-directory "$made" report.tex) \
        > "$made/said" || { tail -25 "$made/said" >&2; exit 1; }
done
mv "$made/report.pdf" "$folder/report.pdf"
echo "$folder/report.pdf"
