#!/bin/sh
# Makes the published runs, the most wanted first. The same command goes on where it was stopped, in the same folder.
#
#     leaderboards/grid.sh RESULTS
#
# Runs that `lgbench submit` takes need a checkout without changes, and the packs installed from wheels: docs/how-to/submit-and-verify.md
# says how. After each line, the runs of whole families can be submitted. LGBENCH names the command, if it is not on the path.
set -eu
results=${1:?a results folder}
lgbench=${LGBENCH:-lgbench}

FAMILIES="dyck set-complement tomita dictionary-lookup max-retrieval" # the two retrieval tasks take longest
NORMS=pre-norm,post-norm,peri-norm,peri-init-norm
# With these, pre-norm, post-norm and peri-norm: a norm on the input, on the output and on the sum, in all twelve combinations.
FACTORS=no-norm,final-norm,input-norm,output-norm,olmo2-norm,input-post-norm,output-post-norm,input-output-norm,input-output-post-norm
ON_ATTENTION=attention-layer-norm,attention-standardize
RETRIEVAL=set-attention,set-attention+attention-layer-norm,set-attention+attention-standardize

# PROTOCOL SEEDS TASKS ENTRIES [OPTIONS]: all of these runs that are not there yet. Probes say why models fail at a length.
runs() {
    protocol=$1 seeds=$2 tasks=$3 entries=$4
    shift 4
    "$lgbench" run --protocol "$protocol" --seeds "$seeds" --task "$tasks" --arch "$entries" --results "$results" --probe all "$@"
}

# The same for each family in turn.
every() {
    protocol=$1 seeds=$2 entries=$3
    shift 3
    for family in $FAMILIES; do runs "$protocol" "$seeds" "$family" "$entries" "$@"; done
}

# What the claims of the source papers ask for. Seeds 5 to 9 come after the predictions about them.
every standard 0:5 "$NORMS,$ON_ATTENTION"
runs standard 0:5 dictionary-lookup,max-retrieval "$RETRIEVAL"
runs standard 0:5 max-retrieval set-attention+adaptive-temperature --average none
every standard 0:5 "$FACTORS" --average none

# The same after other lengths of training.
every short 0:10 "$NORMS,$ON_ATTENTION"
runs paper 0:10 dictionary-lookup "pre-norm,$ON_ATTENTION,$RETRIEVAL"

# Fresh seeds for what `confirmations/` predicts, the cheapest first. `python leaderboards/tuned.py RESULTS FAMILY` writes the tuning runs of
# the first five seeds, and then none is made again.
confirm() { "$lgbench" run --protocol standard --seeds 5:10 --average none --task "$1" --arch "$2" --results "$results"; }
confirm set-complement no-norm,pre-norm,post-norm,output-norm,input-norm,peri-norm,attention-layer-norm,attention-standardize
confirm dictionary-lookup no-norm,pre-norm,post-norm,output-norm,lstm
confirm max-retrieval no-norm,pre-norm,post-norm,peri-norm,attention-layer-norm,attention-standardize,lstm
confirm set-complement lstm,stick-breaking,deltanet,gated-deltanet
confirm dyck pre-norm,lstm,stick-breaking
confirm tomita pre-norm,lstm,post-norm,no-norm,stick-breaking
confirm set-complement olmo2-norm,peri-init-norm,deltanet-negative
confirm dictionary-lookup olmo2-norm,rope,deltanet-negative
confirm max-retrieval peri-init-norm,rope,deltanet-negative
confirm dyck deltanet-negative
confirm tomita deltanet-negative

# The other five seeds that the claims of the source papers ask for.
every standard 0:10 "$NORMS,$ON_ATTENTION"
runs standard 0:10 dictionary-lookup,max-retrieval "$RETRIEVAL"

# The packs.
every standard 0:5 lstm,gru,stick-breaking,rope,ssmax,differential --average none
every standard 0:5 adaptive-temperature,asentmax,entmax15,log-length,nap,selective,sigmoid,sparsemax,t2r --average none
every standard 0:5 alibi,fire,randomised-learned,sinusoidal,xpos --average none
every standard 0:5 deltanet,deltanet-negative,deltaproduct,deltaproduct-negative,gated-deltanet,gated-deltanet-negative --average none
every standard 0:5 mamba-2,mlstm,rwkv-7 --average none
every standard 0:5 llama,gemma2,olmo2,qwen3,gemma3,gpt-neox,gpt2,smollm3,diffllama,gpt-oss,bloom --average none
every standard 0:5 falcon-h1,lfm2,qwen3-next,recurrent-gemma,mamba2,xlstm --average none
runs standard 0:5 dyck olmo-hybrid,rwkv --average none # they need two layers, and on the set tasks models have one
runs standard 0:5 tomita olmo-hybrid,rwkv --average none
every standard 0:5 xt-plain,xt-rms-norm,xt-sandwich-norm,xt-post-norm,xt-dynamic-tanh,xt-qk-norm --average none
every standard 0:5 xt-rope,xt-xpos,xt-alibi,xt-t5,xt-dynamic-bias,xt-pope,xt-cope,xt-forgetting --average none
every standard 0:5 xt-softclamp,xt-talking-heads,xt-selective,xt-memory-kv,xt-laser,xt-value-residual,xt-residual-attention --average none
every standard 0:5 xt-swiglu,xt-relu-squared,xt-macaron,xt-hyper-connections --average none

# Hours and days.
runs long 0:3 dyck "$NORMS"
runs long 0:3 tomita "$NORMS"
runs paper 0:5 max-retrieval "pre-norm,$ON_ATTENTION,$RETRIEVAL,adaptive-temperature,set-attention+adaptive-temperature" --average none
runs paper 0:3 set-complement "no-norm,input-norm,$NORMS" # 20 core-hours

# mamba and falcon-mamba step through positions on a CPU, and take 40 times as long as a transformer.
runs standard 0:5 tomita mamba,falcon-mamba --average none
