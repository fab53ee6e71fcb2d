#!/bin/sh
# Makes the runs of this folder. The same command goes on where it was stopped, in the same folder.
#
#     leaderboards/inside/sweeps.sh RESULTS
#     python leaderboards/inside/pack.py RESULTS
#
# LGBENCH names the command, if it is not on the path.
set -eu
results=${1:?a results folder}
lgbench=${LGBENCH:-lgbench}

NORMS=pre-norm,post-norm,peri-norm,peri-init-norm
WIDTHS=8,16,32,64,128

# PROTOCOL SEEDS TASKS ENTRIES PROBES SETTINGS...: all of these runs that are not there yet.
runs() {
    protocol=$1 seeds=$2 tasks=$3 entries=$4 probes=$5
    shift 5
    for setting in "$@"; do
        set -- "$@" --set "$setting"
        shift
    done
    "$lgbench" run --protocol "$protocol" --average none --seeds "$seeds" --task "$tasks" --arch "$entries" --probe "$probes" --results "$results" "$@"
}

# Models that are not trained: one step, with a learning rate that changes nothing.
runs short 0:5 all pre-norm output_std train.steps=1 train.lr=1e-9

# Width. The bound of the theory is for set complement, v - 1 = 63.
runs short 0:3 set-complement "no-norm,pre-norm,post-norm,peri-norm" logit_separation,output_std model.width=8,16,32,48,63,80,126
for family in dyck dictionary-lookup max-retrieval; do runs short 0:3 $family pre-norm,peri-norm output_std model.width=$WIDTHS; done
runs short 0:3 tomita-4 pre-norm,peri-norm output_std model.width=$WIDTHS

# Depth. The deepest have one seed. On max retrieval deep models take long: as many steps as on Dyck, and tests to 64 training lengths.
runs short 0:3 dyck-2-3 $NORMS residual_norm,update_ratio model.layers=1,2,4,8
runs short 0:1 dyck-2-3 $NORMS residual_norm,update_ratio model.layers=24
runs short 0:2 max-retrieval $NORMS residual_norm,update_ratio train.steps=1000 evaluate.max_length=1024 model.layers=1,2,4,8
runs short 0:1 max-retrieval $NORMS residual_norm,update_ratio train.steps=1000 evaluate.max_length=1024 model.layers=24

# Precision: all families in bfloat16, with rates of their own.
"$lgbench" run --protocol standard --average none --seeds 0:5 --task dictionary-lookup,dyck,max-retrieval,set-complement,tomita \
    --arch pre-norm,post-norm,peri-norm,lstm,deltanet-negative,stick-breaking --precision bfloat16 --results "$results"

# The other entries of the long runs below, on set complement.
"$lgbench" run --protocol standard --average none --seeds 0:5 --task set-complement --precision bfloat16 --results "$results" \
    --arch gru,no-norm,input-norm,peri-init-norm,attention-layer-norm,gated-deltanet
"$lgbench" run --plugin leaderboards/inside/ablations.py --protocol standard --average none --seeds 0:5 --task set-complement \
    --precision bfloat16 --results "$results" --arch gated-deltanet-no-gate

# Max retrieval trained in bfloat16, with one part of the model in float32 at a time. The rate is that of standard/7.
exact() {
    precision=$1 entries=$2
    "$lgbench" run --plugin leaderboards/inside/exact_parts.py --protocol standard --average none --seeds 0:5 --task max-retrieval \
        --arch "$entries" --precision "$precision" --set train.lr=0.006 --results "$results"
}
exact float32 pre-norm
exact bfloat16 pre-norm,exact-embedding,exact-logits,exact-values,exact-head,exact-reading

# The retrieval model of arXiv 2504.02827 at seven learning rates around the tuned ones, with and without a norm on the attention output.
RETRIEVAL=set-attention,set-attention+attention-layer-norm,set-attention+attention-standardize
runs standard 0:5 dictionary-lookup $RETRIEVAL attention_on_source train.lr=0.00025,0.0005,0.001,0.0014,0.002,0.0028,0.004
runs standard 0:5 max-retrieval $RETRIEVAL attention_on_source train.lr=0.0005,0.001,0.002,0.004,0.006,0.008,0.016

ablated() { "$lgbench" run --plugin leaderboards/inside/ablations.py --protocol standard --average none --results "$results" "$@"; }
ungated() { "$lgbench" run --plugin leaderboards/inside/ungated.py --protocol standard --average none --results "$results" "$@"; }

# Set complement: linear recurrences less one part, with rates of their own. Seeds 5 to 9 were run after the finding was committed.
ablated --seeds 0:5 --task set-complement --arch gated-deltanet-no-fade,gated-deltanet-no-gate
ungated --seeds 0:5 --task set-complement --arch rwkv-7-no-gate,mamba-2-no-gate,mlstm-no-gate
ablated --seeds 5:10 --task set-complement --arch gated-deltanet-no-gate
ungated --seeds 5:10 --task set-complement --arch mamba-2-no-gate

# Set complement: all linear recurrences at equal rates.
LINEAR=deltanet,deltanet-negative,deltaproduct,deltaproduct-negative,rwkv-7,mamba-2,mlstm,gated-deltanet,gated-deltanet-negative
ablated --seeds 0:5 --task set-complement --arch "$LINEAR,gated-deltanet-no-fade,gated-deltanet-no-gate" --set train.lr=0.002,0.006

ungated --seeds 0:5 --task set-complement --arch rwkv-7-no-gate,mamba-2-no-gate,mlstm-no-gate --set train.lr=0.002,0.006

# Set complement: norm schemes and stick-breaking attention at equal rates, and dropout.
runs standard 0:5 set-complement no-norm,input-norm,pre-norm,output-norm,post-norm none train.lr=0.00333,0.00577
runs standard 0:5 set-complement pre-norm,stick-breaking none train.lr=0.00577,0.01
runs standard 0:5 set-complement no-norm,pre-norm none train.dropout=0.1,0.3

# Tomita: OLMo Hybrid, whole and less one part.
ablated --seeds 0:10 --task tomita --arch olmo-hybrid,olmo-hybrid-no-rope,olmo-hybrid-no-gate,olmo-hybrid-no-qk-norm,olmo-hybrid-no-mlp

# Tomita 2 without norms, at two rates below the tuned one, with which it explodes.
runs standard 0:5 tomita-2 no-norm none train.lr=0.0156,0.027

# Set complement until it is fitted: 100,000 steps, with rates tuned at that length. bfloat16, which cost nothing there that five seeds show after 9,000 steps, halves the time.
"$lgbench" run --protocol long --average none --seeds 0:3 --task set-complement --precision bfloat16 --results "$results" \
    --arch no-norm,input-norm,pre-norm,post-norm,peri-norm,peri-init-norm,attention-layer-norm,stick-breaking,lstm,gru,deltanet-negative,gated-deltanet
"$lgbench" run --plugin leaderboards/inside/ablations.py --protocol long --average none --seeds 0:3 --task set-complement \
    --precision bfloat16 --results "$results" --arch gated-deltanet-no-gate
