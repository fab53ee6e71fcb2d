"""KL divergence from p*, as a plugin in one file: what somebody writes who wants another measurement."""

from lgbench import Measurement, hookimpl


class KlDivergence(Measurement):
    """KL divergence sum_v p*(v) log(p*(v) / p(v)) of the model's distribution from p*, in nats, mean over contexts."""

    name = "kl"
    label = "KL"
    title = "KL divergence from p* (nats)"
    lower_is_better = True
    range = (0.0, None)
    worst = 100.0
    threshold = 0.1
    landmark = (0.0, "exact")

    def of_contexts(self, predictions):
        p = predictions.distribution.double()
        return (p.xlogy(p) - p * predictions.logits.double().log_softmax(-1)).sum(-1).clamp(0, self.worst)


@hookimpl
def lgbench_measurements():
    return [KlDivergence()]
