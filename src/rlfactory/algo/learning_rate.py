"""The learning rate's course: a linear warm-up, then a linear decay."""


def factor(
    step: int, *, total: int, warmup: int, final_scale: float, zero_first: bool = False
) -> float:
    """What to multiply the learning rate by at `step`, counted from 0, of `total`.

    `(s + 1) / warmup`, then from 1 at `warmup` to `final_scale` at the last step. `zero_first` is
    the walkthrough's: `s / warmup`, so that step 0 learns nothing, and the end just past the last.
    """
    if step < warmup:
        return (step + (0 if zero_first else 1)) / warmup
    last = total if zero_first else total - 1
    progress = min((step - warmup) / max(last - warmup, 1), 1.0)
    return 1 - (1 - final_scale) * progress
