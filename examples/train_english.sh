#!/bin/sh
# Train the English model that ships with elmore: examples/train_english.sh CORPUS [WORK]
#
# CORPUS holds *.train*.txt.{xz,bz2} and wiki-core.valid.txt.xz (one sentence per line, a blank line
# between documents). Everything is made in WORK (default: english-run). Stop it with Ctrl-C or a
# signal and start it again: it continues where it stopped, bit for bit. Where the processor multiplies
# bfloat16 (lscpu: avx512_bf16, amx_bf16), PRECISION="--set run.autocast=true" is faster, and so it was made.
#
# A small model learns most in the first hours, so the first run trains 512 cells. The second
# continues with 768. The third reads the novels twice and part of the encyclopedia not at all, which
# is three quarters of the text. The shipped model had one more run after the first, which taught it
# to read long text; today the recipe does that from the start.
set -eu
corpus=$1
work=${2:-english-run}
here=$(dirname "$0")

[ -e "$work/data/prepared.json" ] || elmore prepare "$corpus"/*.train*.txt.* -o "$work/data" \
    --vocabulary 50000 --heldout-files "$corpus/wiki-core.valid.txt.xz"
resume=
[ -e "$work/small" ] && resume=--resume
elmore pretrain "$work/data" -o "$work/small" --recipe laptop \
    --set schedule.tokens=100000000 ${PRECISION:-} $resume
python "$here/grow.py" "$work/small/checkpoint" -o "$work/grown" --dim 768 --projection-dim 192 \
    --data "$work/data" --run "$work/run" ${PRECISION:-} \
    --set schedule.tokens=30000000 --set schedule.decay_share=0.99 --set schedule.floor=0.01 \
    --set optimizer.lr=0.004 --set optimizer.muon_lr=0.01 --set loss.negatives=2048 \
    --set data.batch_tokens=4096 --set data.batch_rows=128
words=$work/small/checkpoint/vocab.txt
[ -e "$work/novels-again.train.txt.bz2" ] ||
    cp "$corpus/novels.train.txt.bz2" "$work/novels-again.train.txt.bz2"
[ -e "$work/mixed/prepared.json" ] || elmore prepare "$corpus"/[!w]*.train*.txt.* \
    "$corpus"/wiki-core.train*.txt.* "$work/novels-again.train.txt.bz2" -o "$work/mixed" \
    --vocabulary "$words" --heldout-files "$corpus/wiki-core.valid.txt.xz"
python "$here/grow.py" "$work/run/checkpoint" -o "$work/start" --dim 768 --projection-dim 192 \
    --seed 3 --data "$work/mixed" --run "$work/last" ${PRECISION:-} \
    --set schedule.tokens=21400000 --set schedule.decay_share=0.985 --set schedule.floor=0.01 \
    --set schedule.warmup_tokens=300000 --set optimizer.lr=0.0028 --set optimizer.muon_lr=0.007 \
    --set loss.negatives=2048 --set data.batch_tokens=4096 --set data.batch_rows=128
elmore convert "$work/last/checkpoint" -o "$work/english" --precision float16
elmore score "$corpus/wiki-core.test.txt.xz" --total --model "$work/english"
