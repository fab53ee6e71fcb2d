"""Linear recurrences as a plugin: DeltaNet and what came of it, Mamba-2, mLSTM and RWKV-7, each in place of an attention."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Attention, hookimpl
from lgbench_linear import deltanet
from lgbench_linear.mamba import Mamba2
from lgbench_linear.mlstm import Mlstm
from lgbench_linear.rwkv import Rwkv7

LGBENCH_CONTRACT = "3.0"

ATTENTIONS = (*deltanet.ATTENTIONS, Mamba2(), Mlstm(), Rwkv7())


@hookimpl
def lgbench_attentions() -> Iterable[Attention]:
    return ATTENTIONS
