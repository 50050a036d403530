#!/usr/bin/env bash
# build.sh FOLDER: sdist and wheel, checked as a package index checks them, and the wheel's size.
set -euo pipefail
folder=${1:?type: build.sh FOLDER}
most=37000000 # bytes: the weights of the zoo fill 35 MB, 3 of them the models of digits, 3 that of words
log=$(mktemp)
trap 'rm -f "$log"' EXIT

python -m build --no-isolation --outdir "$folder" "$(dirname "${BASH_SOURCE[0]}")/../.." > "$log" 2>&1 ||
  { cat "$log"; exit 1; }
twine check --strict "$folder"/*
for wheel in "$folder"/*.whl; do
  size=$(wc -c < "$wheel")
  echo "$(basename "$wheel"): $size bytes"
  [ "$size" -lt "$most" ] || { echo "error: a wheel has less than $most bytes"; exit 1; }
done
