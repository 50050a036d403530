"""A function that needs TRL's trainer."""

SAYS = "judged takes trainer_state, and there are completions, prompts"


def given(model, tokenizer):
    def judged(completions, trainer_state, **columns):
        return [float(trainer_state.global_step)] * len(completions)

    return {"reward": judged}
