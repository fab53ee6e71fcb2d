"""Trainings that are interrupted and compared to the bit."""

from __future__ import annotations


def bits(tensors) -> dict[str, bytes]:
    """The bytes of the tensors, so that nan equals nan and 0 is not -0."""
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in tensors.items()}


def numbers(trained) -> dict[str, object]:
    """Everything that training yields, to the bit."""
    weights = {f"{variant}/{name}": w for variant, named in trained.weights.items() for name, w in named.items()}
    curve = {"loss": trained.curve.loss, "gradient_norm": trained.curve.gradient_norm}
    return bits(weights | curve) | {"steps": trained.curve.steps, "diverged": trained.diverged}


def stopping_after(step: int):
    """A report that stops training as Ctrl-C does, `step` steps done."""

    def report(done, loss):
        if done == step:
            raise KeyboardInterrupt

    return report
