#!/bin/sh
# Makes the runs of field.md: what its claims need, what the board by class needs, and every other task of the packs, in each part the cheapest
# first. The same command goes on where it was stopped, in the same folder. After each line, the runs can be submitted.
#
#     leaderboards/field.sh RESULTS
#
# Runs that `lgbench submit` takes need a checkout without changes, and the packs installed from wheels: docs/how-to/submit-and-verify.md
# says how. LGBENCH names the command, if it is not on the path; LGBENCH=echo prints what would be run.
set -eu
results=${1:?a results folder}
lgbench=${LGBENCH:-lgbench}

CHOMSKY=even-pairs,modular-arithmetic,parity-check,cycle-navigation,stack-manipulation,reverse-string,modular-arithmetic-brackets,solve-equation
CHOMSKY=$CHOMSKY,duplicate-string,missing-duplicate,odds-first,binary-addition,binary-multiplication,square-root,bucket-sort
WRITTEN=copy-unique,copy-repeat,sort,count,binary-majority,majority,interleaved-majority,mode,parity-uniform-ones,binary-addition-written
ADDITION=decimal-addition,decimal-addition-reversed,decimal-addition-hints,decimal-addition-hints-reversed,decimal-addition-coupled
LANGUAGES=regular,counter,shuffle,boolean,pfa,hmm
STATE=word-problem,flip-flop,boxes
RECALL=multi-query-recall,selective-copying,variable-tracking,k-hop,induction-heads
GAMES=connect-four,othello

# TASKS ENTRIES: all of these runs that are not there yet.
runs() {
    "$lgbench" run --protocol standard --seeds 0:5 --task "$1" --arch "$2" --average none --results "$results"
}

# What the claims need, with core-hours by --dry-run, which times uncompiled steps: too many for all but loops over positions.
runs "$CHOMSKY" rnn # 0.5
runs copy-repeat,copy-unique rope,mamba-2 # 1
runs "$CHOMSKY" pre-norm # 1.5
runs "$CHOMSKY" stack-rnn # 1.5
runs "$CHOMSKY",regular,copy-repeat,copy-unique lstm # 3
runs "$LANGUAGES,$WRITTEN",shuffle-1,decimal-addition-coupled pre-norm # 4
runs tomita,regular,counter,boolean,shuffle,shuffle-1,"$WRITTEN,$ADDITION" coupled # 5
runs word-problem deltaproduct,deltaproduct-negative # 5
runs "$CHOMSKY" tape-rnn # 5.5
runs parity-check,word-problem deltanet,deltanet-negative,mamba-2 # 6

ENTRIES="pre-norm lstm stack-rnn peri-norm rope randomised-learned stick-breaking mamba-2 deltanet-negative deltaproduct-negative"

# The board by class: the tasks of classes.py by all ten entries, the cheapest first.
for tasks in "$GAMES" parity-check boxes,multi-query-recall,selective-copying reverse-string,stack-manipulation \
    binary-majority,shuffle,copy-repeat,odds-first dyck,tomita word-problem; do
    for entry in $ENTRIES; do
        runs "$tasks" "$entry"
    done
done

# Every other task of the packs.
for entry in $ENTRIES; do
    runs "$RECALL,$ADDITION" "$entry"
    runs "$WRITTEN,$CHOMSKY" "$entry"
    runs "$STATE" "$entry"
    runs "$LANGUAGES" "$entry"
done
