#!/bin/sh
# Makes the runs of the picture in field.md: a transformer without positions, trained on inputs of five lengths. The cheapest come first,
# and the same command goes on where it was stopped, in the same folder.
#
#     leaderboards/lengths.sh RESULTS
#     python leaderboards/inside/pack.py RESULTS
#
# LGBENCH names the command, if it is not on the path; LGBENCH=echo prints what would be run. By --dry-run, without compiling, the lengths take
# half, 1, 2, 3 and 4 core-hours.
set -eu
results=${1:?a results folder}
lgbench=${LGBENCH:-lgbench}

# With a program in C-RASP, then without one, as in lengths.py.
WITH=regular-d-2,regular-d-3,regular-d-4,regular-d-12,regular-abcde,regular-ab-d-bc,counter-2,shuffle-2
WITHOUT=regular-012-0-2,regular-aa,regular-aaaa,regular-abab,regular-parity,tomita-3,tomita-5,tomita-6
# Not in the picture: the best guess from the length alone is exact.
GUESSED=tomita-2

for length in 8 16 32 64 128; do
    "$lgbench" run --protocol standard --seeds 0:3 --task "$WITH,$WITHOUT,$GUESSED" --arch pre-norm --average none --set "train.max_length=$length" --results "$results"
done
