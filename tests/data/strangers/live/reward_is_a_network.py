"""TRL's reward model."""

from transformers import GPT2ForSequenceClassification

SAYS = "reward: is a GPT2ForSequenceClassification, a network; reward=reward_model"


def given(model, tokenizer):
    return {"reward": GPT2ForSequenceClassification(model.config)}
