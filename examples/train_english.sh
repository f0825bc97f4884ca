#!/bin/sh
# Train the English model that ships with elmore: examples/train_english.sh CORPUS [WORK]
#
# CORPUS holds *.train*.txt.{xz,bz2} and wiki-core.valid.txt.xz (a sentence a line, a blank line
# between documents). Everything is made in WORK (default: english-run). Stop it with Ctrl-C or a
# signal and start it again: it goes on where it stopped, bit for bit. Where the processor multiplies
# bfloat16 (lscpu: avx512_bf16, amx_bf16), PRECISION="--set run.autocast=true" is faster, and so it was made.
set -eu
corpus=$1
work=${2:-english-run}

[ -e "$work/data/prepared.json" ] || elmore prepare "$corpus"/*.train*.txt.* -o "$work/data" \
    --vocabulary 50000 --heldout-files "$corpus/wiki-core.valid.txt.xz"
resume=
[ -e "$work/run" ] && resume=--resume
elmore pretrain "$work/data" -o "$work/run" --recipe laptop \
    --set schedule.tokens=100000000 ${PRECISION:-} $resume
elmore convert "$work/run/checkpoint" -o "$work/english" --precision float16
elmore plot "$work/run" -o "$work/curve.svg" --force
elmore perplexity "$work/english" "$corpus/wiki-core.test.txt.xz"
